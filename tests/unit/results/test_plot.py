"""Rules of the picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from live_eval.results import plot
from live_eval.results.plot import plot_scores
from protocol.messages import JobResult


def result(version: int | None, dataset: str, status: str, score: float | None, step: int = 0) -> JobResult:
    return JobResult(
        result_id=f"{version}/{step}/{dataset}",
        job_id=f"{version}/{step}/{dataset}",
        dataset=dataset,
        status=status,
        policy_version=version,
        checkpoint="" if version is not None else "/c",
        train_step=step,
        score=score,
    )


@pytest.mark.parametrize(
    "results",
    [
        [],
        [result(1, "rev", "succeeded", 0.5)],
        [result(3, "a", "succeeded", 0.5), result(4, "a", "cancelled", None)],
        [result(3, "a", "succeeded", -2.5), result(4, "b", "succeeded", 7.0), result(5, "b", "failed", None)],
        [result(3, "a", "superseded", None), result(None, "a", "succeeded", 0.3, step=200)],
    ],
)
def test_any_results_make_a_png(results: list[JobResult], tmp_path: Path) -> None:
    path = tmp_path / "score.png"
    plot_scores(results, path, title="run")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert list(tmp_path.iterdir()) == [path]


def test_only_succeeded_evaluations_are_points_and_the_others_are_marks(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    results = [
        result(7, "rev", "succeeded", 0.7),
        result(5, "rev", "succeeded", 0.5),
        result(6, "rev", "cancelled", 0.1),
        result(6, "add", "superseded", None),
        result(7, "add", "succeeded", 1.0),
    ]
    axes = Figure().subplots()
    frame = plot._Frame.around(results)
    plot._draw(axes, results, frame, step="policy_version")
    lines = {str(line.get_label()): line for line in axes.get_lines()}
    assert list(lines["rev"].get_xydata()[:, 0]) == [5, 7]
    assert list(lines["add"].get_xydata()[:, 1]) == [1.0]
    assert lines["rev"].get_marker() != lines["add"].get_marker()
    marks = {str(mark.get_label()): mark.get_offsets() for mark in axes.collections}
    assert {label: list(offsets[:, 0]) for label, offsets in marks.items()} == {
        "superseded": [6],
        "cancelled": [6],
    }
    assert all(offsets[:, 1].max() < 0 for offsets in marks.values())
    assert 1.0 in [round(tick, 9) for tick in axes.get_yticks()]


def test_datasets_beyond_the_palette_still_look_different() -> None:
    looks = {
        (
            plot._COLOURS[i % len(plot._COLOURS)],
            plot._MARKERS[i % len(plot._MARKERS)],
            plot._DASHES[i % len(plot._DASHES)],
        )
        for i in range(28)
    }
    assert len(looks) == 28


def test_a_score_has_its_interval_within_the_picture() -> None:
    import msgspec
    from matplotlib.figure import Figure

    found = msgspec.structs.replace(
        result(5, "rev", "succeeded", 0.5), metrics={"score/low": 0.3, "score/high": 1.4}
    )
    results = [found, result(6, "rev", "succeeded", 0.6)]
    axes = Figure().subplots()
    frame = plot._Frame.around(results)
    plot._draw(axes, results, frame, step="policy_version")
    (upright,) = [each for each in axes.collections if hasattr(each, "get_segments")]
    assert [segment.tolist() for segment in upright.get_segments()] == [[[5, 0.3], [5, 1.4]]]
    assert axes.get_ylim()[1] > 1.4
