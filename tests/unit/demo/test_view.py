"""What a person reads while the demo runs."""

from __future__ import annotations

import io

from rich.console import Console

from live_eval.demo.view import DemoView, describe, shortened
from protocol.messages import JobEvent


def event(status: str, **fields: object) -> JobEvent:
    return JobEvent(job_id="v7/rev", dataset="rev", policy_version=7, status=status, **fields)  # pyright: ignore


def test_a_finished_job_is_one_line_with_its_score() -> None:
    done = event("succeeded", score=0.5, num_done=64, num_expected=64)
    assert describe(done) == "version 7 on rev: score 0.500  [64/64 samples]"


def test_a_cancelled_job_says_why_and_shows_no_score() -> None:
    cancelled = event("cancelled", reason="newer_version", num_done=12, num_expected=64)
    assert describe(cancelled) == "version 7 on rev: cancelled (newer_version)  [12/64 samples]"


def test_a_checkpoint_is_named_by_its_path() -> None:
    done = JobEvent(
        job_id="c1/rev", dataset="rev", checkpoint="/ckpt/step_200", status="succeeded", score=1.0
    )
    assert describe(done).startswith("/ckpt/step_200 on rev: score 1.000")


def test_where_there_is_no_terminal_lines_are_plain_and_whole() -> None:
    out = io.StringIO()
    view = DemoView(Console(file=out, width=40))
    with view.live():
        view.training(num_syncs=1, num_versions=4, loss=2.5)
        view.job(event("running", num_done=3, num_expected=64))
        view.job(event("succeeded", score=0.5, num_done=64, num_expected=64))
    lines = out.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].endswith("version 7 on rev: score 0.500  [64/64 samples]")
    assert "\x1b" not in out.getvalue()


def test_a_terminal_gets_a_bar_for_a_running_job() -> None:
    out = io.StringIO()
    view = DemoView(Console(file=out, width=100, force_terminal=True))
    with view.live():
        view.job(event("running", num_done=3, num_expected=64, score=0.25))
        view._progress.refresh()
    assert "eval version 7 on rev" in out.getvalue()
    assert "mean 0.250" in out.getvalue()


def test_a_long_path_leaves_the_bar_its_room_on_80_columns() -> None:
    path = "/home/somebody/experiments/2026/checkpoints/global_step_200"
    assert shortened("/ckpt/step_200", 24) == "/ckpt/step_200"
    assert shortened(path, 24) == "/home/so…global_step_200"
    out = io.StringIO()
    view = DemoView(Console(file=out, width=80, force_terminal=True, color_system=None))
    with view.live():
        view.job(
            JobEvent(
                job_id="c1/rev",
                dataset="rev",
                checkpoint=path,
                status="running",
                num_done=63,
                num_expected=64,
            )
        )
        view._progress.refresh()
    assert "━" * 10 in out.getvalue()
