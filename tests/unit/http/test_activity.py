"""What engines did when, as spans."""

from __future__ import annotations

from pathlib import Path

from live_eval.http.activity import Activity, Span


class Ticks:
    """A clock that goes on by one at each look."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def shape(spans: list[Span]) -> list[tuple[str, str | None, str]]:
    return [(span.kind, span.target, span.outcome) for span in spans]


def test_an_engines_life_is_told_in_spans() -> None:
    activity = Activity(clock=Ticks())
    for state in ("starting", "ready"):
        activity.engine_changed("e", state, "")
    activity.load_began("e", "7")
    activity.engine_changed("e", "pinned", "7")
    activity.engine_changed("e", "ready", "")
    activity.load_began("e", "ckpt-c1")
    activity.engine_changed("e", "pinned", "ckpt-c1")
    spans = activity.spans(0, 100)
    assert shape(spans) == [
        ("down", None, ""),
        ("load", "v7", "ok"),
        ("eval", "v7", ""),
        ("load", "c1", "ok"),
        ("eval", "c1", ""),
    ]
    assert spans[-1].end is None
    assert (activity.engines["e"].state, activity.engines["e"].target) == ("pinned", "c1")


def test_a_load_or_an_eval_that_an_engine_does_not_survive_says_so() -> None:
    activity = Activity(clock=Ticks())
    activity.engine_changed("e", "ready", "")
    activity.load_began("e", "7")
    activity.engine_changed("e", "quarantined", "the load failed")
    activity.engine_changed("e", "starting", "")
    activity.engine_changed("e", "starting", "waits for a server at http://h:1")
    activity.engine_changed("e", "ready", "")
    activity.engine_changed("e", "pinned", "8")
    activity.engine_changed("e", "quarantined", "died")
    kinds = shape(activity.spans(0, 100))
    assert kinds[0] == ("load", "v7", "failed")
    assert kinds[-2:] == [("eval", "v8", "failed"), ("down", None, "")]
    assert activity.engines["e"].num_restarts == 1


def test_only_what_overlaps_the_window_is_there() -> None:
    activity = Activity(clock=Ticks())
    for label in ("1", "2", "3"):
        activity.engine_changed("e", "pinned", label)
        activity.engine_changed("e", "ready", "")
    ends = {span.target: span.end for span in activity.spans(0, 100)}
    assert [span.target for span in activity.spans(ends["v2"] or 0, 100)] == ["v2", "v3"]
    assert [span.target for span in activity.spans(0, ends["v1"] or 0)] == ["v1"]


def test_the_next_life_of_a_service_goes_on_with_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "activity.jsonl"
    first = Activity(path, clock=Ticks())
    first.engine_changed("e", "pinned", "1")
    first.close()
    with path.open("a") as file:
        file.write('{"engine": "e", "ki')
    second = Activity(path, clock=Ticks())
    assert shape(second.spans(0, 100)) == [("eval", "v1", "cut")]
    second.close()
