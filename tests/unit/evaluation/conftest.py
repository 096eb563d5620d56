from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from live_eval.evaluation.datasets import EvalRow, EvalSet, EvalSetConfig
from live_eval.evaluation.job import JobSpec, RunLimits
from live_eval.evaluation.rewards import ExactMatch, Grader
from live_eval.evaluation.runner import JobRun
from live_eval.targets import PolicyTarget, Target

if TYPE_CHECKING:
    from fakes.source import FakeSource

MakeRun = Callable[..., JobRun]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Runs of version 7 over rows a0, a1, ... whose right answers are A0, A1, ..., as FakeSource answers."""

    def make(
        source: FakeSource,
        *,
        num_rows: int = 10,
        grader: Grader | None = None,
        target: Target | None = None,
        rows: tuple[EvalRow, ...] | None = None,
        attempt: int = 1,
        path: Path = tmp_path / "samples" / "v7" / "up.jsonl",
        limits: RunLimits | None = None,
        on_progress: Any = None,
        **config: Any,
    ) -> JobRun:
        if rows is None:
            rows = tuple(
                EvalRow(row_id=f"r{i}", line=i + 1, prompt=f"a{i}", label=f"A{i}") for i in range(num_rows)
            )
        return JobRun(
            JobSpec(
                job_id="v7/up",
                target=target or PolicyTarget(policy_version=7),
                label="7",
                samples_path=path,
                attempt=attempt,
            ),
            EvalSet(config=EvalSetConfig(name="up", path=tmp_path / "up.jsonl", **config), rows=rows),
            source,
            grader=grader or ExactMatch(),
            limits=limits,
            on_progress=on_progress,
        )

    return make
