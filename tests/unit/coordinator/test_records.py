"""What becomes of decisions and measurements in the ledger, and who is told when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.job_bench import target

from live_eval.coordinator.records import JobRecords
from live_eval.errors import LedgerError
from live_eval.evaluation.job import JobOutcomeDetail, Progress, SampleCounts
from live_eval.reasons import EndReason, JobStatus
from live_eval.results.ledger import Ledger
from live_eval.scheduling.actions import EndJob, NewJob, RetryJob, RunJob, Trigger
from live_eval.targets import CheckpointTarget, PolicyTarget, Target, job_id

if TYPE_CHECKING:
    from protocol.messages import JobEvent, JobResult


class Desk:
    """Records over a real ledger; keeps what was told, with what the ledger had at that moment."""

    def __init__(self, root: Path) -> None:
        self.ledger = Ledger.open(root / "ledger.sqlite", run_id="run")
        self.told: list[tuple[JobEvent, JobResult | None]] = []
        self.records = JobRecords(
            self.ledger,
            num_expected={"a": 4},
            announce=lambda event: self.told.append((event, self.ledger.result(event.job_id))),
            digest_of=lambda version: f"digest-{version}",
            same_as={8: 7}.get,
            clock=lambda: 50.0,
        )

    def create(
        self, of: Target, dataset: str = "a", *, trigger: Trigger = Trigger.EVERY, due: int | None = None
    ) -> str:
        name = job_id(of, dataset)
        self.records.create(
            NewJob(
                job_id=name,
                evaluation=of.key,
                target=of,
                dataset=dataset,
                trigger=trigger,
                due_rollout=due,
            )
        )
        return name

    def start(self, of: Target, *, attempt: int = 1, protected: bool = False) -> None:
        self.records.start(
            RunJob(
                job_id=job_id(of, "a"),
                evaluation=of.key,
                target=of,
                dataset="a",
                attempt=attempt,
                protected=protected,
            )
        )

    def end(
        self,
        of: Target,
        status: JobStatus = JobStatus.SUCCEEDED,
        reason: EndReason = EndReason.COMPLETED,
        *,
        protected: bool = False,
    ) -> JobResult:
        return self.records.end(
            EndJob(
                job_id=job_id(of, "a"),
                evaluation=of.key,
                status=status,
                reason=reason,
                attempt=1,
                protected=protected,
            )
        )


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.ledger.close()


def measured(name: str, *, status: JobStatus = JobStatus.SUCCEEDED) -> JobOutcomeDetail:
    succeeded = status is JobStatus.SUCCEEDED
    numbers = {"score": 0.5, "pass@1": 0.5}
    return JobOutcomeDetail(
        job_id=name,
        status=status,
        reason=EndReason.COMPLETED if succeeded else EndReason.SHUTDOWN,
        detail="one of them is late",
        counts=SampleCounts(n_expected=4, n_scored=2, n_errored=1, n_aborted=1),
        score=0.5 if succeeded else None,
        metrics=numbers if succeeded else {},
        partial={} if succeeded else numbers,
        engine_labels=("7",),
        samples_path="samples/v7/a.jsonl",
    )


def test_nobody_is_told_of_a_result_before_the_ledger_has_it(desk: Desk) -> None:
    name = desk.create(target(7))
    desk.start(target(7))
    desk.records.measured(measured(name))
    assert all(result is None for _, result in desk.told)
    result = desk.end(target(7))
    event, known = desk.told[-1]
    assert known == result
    assert (event.status, event.score, event.num_done, event.num_expected) == ("succeeded", 0.5, 3, 4)
    assert [event.status for event, _ in desk.told] == ["waiting", "running", "succeeded"]


def test_a_result_that_the_ledger_refuses_is_told_to_nobody(desk: Desk) -> None:
    desk.create(target(7))
    desk.start(target(7))
    desk.end(target(7))
    before = list(desk.told)
    with pytest.raises(LedgerError, match="ended"):
        desk.end(target(7), JobStatus.FAILED, EndReason.INTERNAL)
    assert desk.told == before


def test_a_result_carries_what_was_measured_and_the_digest_of_its_version(desk: Desk) -> None:
    name = desk.create(target(7))
    desk.start(target(7))
    desk.records.measured(measured(name))
    result = desk.end(target(7))
    assert (result.score, result.metrics, result.partial) == (0.5, {"score": 0.5, "pass@1": 0.5}, {})
    assert (result.n_expected, result.n_scored, result.n_errored, result.n_aborted) == (4, 2, 1, 1)
    assert (result.policy_version, result.train_step, result.weight_digest) == (7, 70, "digest-7")
    assert (result.engine_versions, result.detail) == (("7",), "one of them is late")
    assert desk.ledger.result(name) == result


def test_a_version_with_the_weights_of_an_earlier_one_has_a_warning_on_its_results(desk: Desk) -> None:
    name = desk.create(target(8))
    desk.start(target(8))
    desk.records.measured(measured(name))
    warning = "warning: the weights are those of version 7, bit for bit"
    assert desk.end(target(8)).detail == f"one of them is late; {warning}"
    other = desk.create(target(8), "b")
    unmeasured = EndJob(
        job_id=other, evaluation="v8", status=JobStatus.CANCELLED, reason=EndReason.USER, attempt=1,
        protected=False,
    )  # fmt: skip
    assert desk.records.end(unmeasured).detail == warning


@pytest.mark.parametrize(
    ("due", "reason", "detail"),
    [
        (
            4,
            "interval: due after rollout 4",
            "one of them is late; was due after rollout 4, whose first sync at or after it was that of "
            "rollout 6",
        ),
        (6, "interval", "one of them is late"),
    ],
)
def test_a_due_point_without_a_sync_is_served_by_a_later_one_that_says_so(
    desk: Desk, due: int, reason: str, detail: str
) -> None:
    version = PolicyTarget(policy_version=7, rollout_id=6)
    name = desk.create(version, trigger=Trigger.INTERVAL, due=due)
    assert desk.ledger.job(name).reason == reason
    desk.start(version)
    desk.records.measured(measured(name))
    assert desk.end(version).detail == detail


def test_what_an_unfinished_job_measured_is_kept_apart(desk: Desk) -> None:
    name = desk.create(target(7))
    desk.start(target(7))
    desk.records.measured(measured(name, status=JobStatus.CANCELLED))
    result = desk.end(target(7), JobStatus.CANCELLED, EndReason.NEWER_VERSION)
    assert (result.score, result.metrics) == (None, {})
    assert result.partial == {"score": 0.5, "pass@1": 0.5}
    assert result.n_aborted == 1


def test_a_score_that_the_scheduler_did_not_accept_is_none(desk: Desk) -> None:
    """A job that was done after its stop had been confirmed ends as stopped; its numbers do not count."""
    name = desk.create(target(7))
    desk.start(target(7))
    desk.records.measured(measured(name))
    result = desk.end(target(7), JobStatus.TIMED_OUT, EndReason.JOB_TIMEOUT)
    assert (result.score, result.metrics) == (None, {})


def test_a_job_that_could_not_be_run_says_why(desk: Desk) -> None:
    name = desk.create(target(7))
    desk.records.explain([name], "engine eval-0 is dead")
    result = desk.end(target(7), JobStatus.FAILED, EndReason.ENGINE_FAILED)
    assert (result.detail, result.reason) == ("engine eval-0 is dead", "engine_failed")
    assert (result.n_expected, result.n_scored, result.started_at) == (4, 0, None)


def test_what_an_attempt_measured_does_not_reach_the_next_one(desk: Desk) -> None:
    name = desk.create(target(7))
    desk.start(target(7))
    desk.records.measured(measured(name, status=JobStatus.FAILED))
    desk.records.retry(RetryJob(job_id=name, evaluation="v7", attempt=2, reason=EndReason.ENGINE_FAILED))
    assert desk.ledger.job(name).status is JobStatus.WAITING
    assert desk.ledger.job(name).attempt == 2
    result = desk.end(target(7), JobStatus.CANCELLED, EndReason.SHUTDOWN)
    assert (result.partial, result.detail, result.n_scored) == ({}, "", 0)


def test_a_job_that_never_started_waits_on_when_it_is_to_be_run_again(desk: Desk) -> None:
    name = desk.create(target(7))
    desk.records.retry(RetryJob(job_id=name, evaluation="v7", attempt=2, reason=EndReason.LOAD_FAILED))
    assert desk.ledger.job(name).status is JobStatus.WAITING
    desk.start(target(7), attempt=2)
    assert desk.ledger.job(name).attempt == 2
    assert [move.to_status for move in desk.ledger.transitions(name)] == ["waiting", "running"]


@pytest.mark.parametrize("at", ["start", "end"])
def test_a_protected_job_is_marked(desk: Desk, at: str) -> None:
    name = desk.create(target(7))
    desk.start(target(7), protected=at == "start")
    desk.end(target(7), protected=True)
    assert desk.ledger.job(name).protected


def test_progress_is_told_with_the_mean_so_far(desk: Desk) -> None:
    name = desk.create(target(7))
    desk.start(target(7))
    job = RunJob(job_id=name, evaluation="v7", target=target(7), dataset="a", attempt=1)
    desk.records.progress(job, Progress(num_done=3, num_expected=4, mean=0.25))
    event, _ = desk.told[-1]
    assert (event.num_done, event.num_expected, event.score, event.status) == (3, 4, 0.25, "running")
    assert desk.ledger.job(name).num_done == 3


def test_a_checkpoint_is_told_by_its_path_and_has_no_version(desk: Desk) -> None:
    checkpoint = CheckpointTarget(path="/ckpt/step_200", number=1, train_step=200)
    desk.create(checkpoint)
    desk.start(checkpoint)
    result = desk.end(checkpoint)
    event, _ = desk.told[-1]
    assert (event.policy_version, event.checkpoint) == (None, "/ckpt/step_200")
    assert (result.policy_version, result.checkpoint, result.weight_digest) == (None, "/ckpt/step_200", "")


def test_known_gives_every_job_back_as_it_stands(desk: Desk) -> None:
    for version in (1, 2, 3):
        desk.create(target(version))
    desk.start(target(1))
    desk.end(target(1))
    desk.start(target(2))
    known = [(job.job_id, job.target, job.status, job.attempt, job.reason) for job in desk.records.known()]
    assert known == [
        ("v1/a", target(1), JobStatus.SUCCEEDED, 1, EndReason.COMPLETED),
        ("v2/a", target(2), JobStatus.RUNNING, 1, None),
        ("v3/a", target(3), JobStatus.WAITING, 1, None),
    ]
