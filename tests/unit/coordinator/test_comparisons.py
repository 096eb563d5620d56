"""A version against the one before it and the best one, over a real ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.job_bench import target

from live_eval.coordinator.records import JobRecords
from live_eval.evaluation.comparison import prompt_scores
from live_eval.evaluation.job import JobOutcomeDetail, SampleCounts
from live_eval.evaluation.sample import Sample
from live_eval.evaluation.sample_log import SampleLog
from live_eval.reasons import EndReason, JobStatus
from live_eval.results.ledger import Ledger
from live_eval.scheduling.actions import EndJob, NewJob, RunJob, Trigger
from live_eval.targets import CheckpointTarget, Target, job_id


class Run:
    """Finishes evaluations of dataset a."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 100.0
        self.ledger = Ledger.open(root / "ledger.sqlite", run_id="run")
        self.restart()

    def restart(self) -> None:
        self.records = JobRecords(
            self.ledger,
            num_expected={"a": 4},
            announce=lambda event: None,
            digest_of=lambda version: "",
            clock=lambda: self.now,
        )

    def finish(self, of: Target, right: int, *, num: int = 20) -> dict[str, float]:
        """The target gets the first `right` of `num` rows right; the result's metrics."""
        name = job_id(of, "a")
        samples = [
            Sample(
                dataset="a", row_id=f"r{i}", sample=0, attempt=1, prompt=f"p{i}", label="l", status="scored",
                reward=float(i < right),
            )
            for i in range(num)
        ]  # fmt: skip
        path = self.root / f"{of.key}.jsonl"
        log = SampleLog(path)
        for sample in samples:
            log.append(sample)
        log.close()
        self.now += 10
        job: dict[str, Any] = {"job_id": name, "evaluation": of.key}
        self.records.create(NewJob(target=of, dataset="a", trigger=Trigger.EVERY, **job))
        self.records.start(RunJob(target=of, dataset="a", attempt=1, **job))
        self.records.measured(
            JobOutcomeDetail(
                job_id=name,
                status=JobStatus.SUCCEEDED,
                reason=EndReason.COMPLETED,
                counts=SampleCounts(n_expected=num, n_scored=num, n_errored=0, n_aborted=0),
                score=right / num,
                metrics={"score": right / num},
                samples_path=str(path),
                prompt_scores=prompt_scores(samples),
            )
        )
        result = self.records.end(
            EndJob(status=JobStatus.SUCCEEDED, reason=EndReason.COMPLETED, attempt=1, **job)
        )
        return dict(result.metrics)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    made.ledger.close()


def versions(metrics: dict[str, float]) -> tuple[float | None, float | None]:
    return metrics.get("vs_previous/version"), metrics.get("vs_best/version")


@pytest.mark.parametrize("restarted", [False, True])
def test_each_version_is_compared_with_the_one_before_and_the_best(run: Run, restarted: bool) -> None:
    found = []
    for version, right in ((1, 5), (3, 15), (4, 10), (6, 15)):
        if restarted:
            run.restart()
        found.append(run.finish(target(version), right))
    assert [versions(metrics) for metrics in found] == [(None, None), (1, 1), (3, 3), (4, 3)]
    assert [metrics.get("vs_previous/diff") for metrics in found] == [None, 0.5, -0.25, 0.25]
    assert found[3]["vs_best/diff"] == 0.0
    assert found[1]["vs_previous/low"] > 0 > found[2]["vs_previous/high"]


def test_one_that_ends_late_is_compared_with_what_came_before_it(run: Run) -> None:
    run.finish(target(1), 5)
    run.finish(target(3), 15)
    assert versions(run.finish(target(2), 9)) == (1, 3)


def test_checkpoints_are_compared_with_nothing_and_nothing_with_them(run: Run) -> None:
    run.finish(target(1), 5)
    assert versions(run.finish(CheckpointTarget(path="/c", number=1), 20)) == (None, None)
    assert versions(run.finish(target(2), 5)) == (1, 1)


def test_a_dataset_that_changed_begins_anew(run: Run) -> None:
    run.finish(target(1), 5)
    run.ledger.note_dataset("a", {"n": 2}, now=run.now + 5)
    run.restart()
    run.now += 10
    assert versions(run.finish(target(2), 5)) == (None, None)


def test_samples_that_are_gone_leave_the_comparison_out(run: Run) -> None:
    run.finish(target(1), 5)
    (run.root / "v1.jsonl").unlink()
    run.restart()
    assert versions(run.finish(target(2), 5)) == (None, None)
