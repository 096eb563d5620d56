"""A ledger in a temporary directory, and short ways to fill it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from live_eval.reasons import EndReason, JobStatus
from live_eval.results.ledger import Ledger
from live_eval.targets import PolicyTarget, Target, job_id
from protocol.messages import JobResult

Finish = Callable[..., JobResult]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.sqlite", run_id="run", now=1.0) as opened:
        yield opened


@pytest.fixture
def finish(ledger: Ledger) -> Finish:
    """Create, run and end one job of a policy version (or of a target) on a dataset."""

    def act(
        target: int | Target,
        dataset: str = "rev",
        *,
        score: float | None = 0.5,
        status: JobStatus = JobStatus.SUCCEEDED,
        reason: str = EndReason.COMPLETED,
        metrics: dict[str, float] | None = None,
        detail: str = "",
    ) -> JobResult:
        if isinstance(target, int):
            target = PolicyTarget(policy_version=target, rollout_id=target - 1, train_step=10 * target)
        name = job_id(target, dataset)
        ledger.create_jobs(target, [dataset], now=2.0)
        if status is JobStatus.SUCCEEDED:
            ledger.start(name, now=3.0)
        result = msgspec.structs.replace(
            ledger.outcome(name, status=status, reason=reason, now=9.0),
            detail=detail,
            score=score if status is JobStatus.SUCCEEDED else None,
            metrics=metrics or {},
            n_expected=8,
            n_scored=8 if status is JobStatus.SUCCEEDED else 3,
        )
        ledger.finish(result)
        return result

    return act
