"""One evaluation on engines: its lease, its pins, its cancels, and the reason when it cannot be run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.checkpoints import Model
from fakes.job_bench import budget_beside, target
from fakes.source import FakeSource

from live_eval.coordinator.evaluator import label_of, reason_of
from live_eval.errors import (
    CorruptVersion,
    DatasetError,
    EngineDied,
    EngineError,
    EngineTimeout,
    LiveEvalError,
    LoadFailed,
    NoSuchVersion,
    PinMismatch,
    StoreError,
    StoreFull,
)
from live_eval.reasons import EndReason, JobStatus
from live_eval.scheduling.actions import RunEvaluation, RunJob
from live_eval.store.records import FRESH_OWNER, PinKind
from live_eval.targets import CheckpointTarget, Target, job_id

if TYPE_CHECKING:
    from fakes.job_bench import Bench

    from live_eval.engines.pin import PinTarget
    from live_eval.evaluation.job import JobOutcomeDetail, Progress


class Reported:
    """Keeps what an evaluator reports."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.details: dict[str, JobOutcomeDetail] = {}
        self.fault: Exception | None = None

    def job_started(self, job: RunJob) -> None:
        self.lines.append(f"started {job.job_id}")
        if self.fault is not None:
            raise self.fault

    def job_progress(self, job: RunJob, progress: Progress) -> None:
        """Not looked at here."""

    def job_finished(self, job: RunJob, detail: JobOutcomeDetail) -> None:
        self.lines.append(f"finished {job.job_id}: {detail.status}: {detail.reason}")
        self.details[job.job_id] = detail


def run_of(of: Target, *datasets: str, attempt: int = 1) -> RunEvaluation:
    jobs = tuple(
        RunJob(job_id=job_id(of, name), evaluation=of.key, target=of, dataset=name, attempt=attempt)
        for name in datasets or ("a", "b")
    )
    return RunEvaluation(evaluation=of.key, run=attempt, target=of, jobs=jobs)


@pytest.fixture
def version(bench: Bench) -> Target:
    """A sealed version with the claim that the scheduler asks for."""
    bench.seal(1)
    bench.store.pin(1, "v1", PinKind.WAITING)
    return target(1)


@pytest.fixture
def reported() -> Reported:
    return Reported()


async def test_all_datasets_run_in_order_under_one_lease_and_one_pin(
    bench: Bench, version: Target, reported: Reported
) -> None:
    end = await bench.evaluator().run(run_of(version), reported)
    assert end.reason is None
    assert bench.group.events == ["lease v1", "pin 1", "release"]
    assert reported.lines == [
        "started v1/a",
        "finished v1/a: succeeded: completed",
        "started v1/b",
        "finished v1/b: succeeded: completed",
    ]
    assert reported.details["v1/a"].engine_labels == ("1",)
    assert bench.group.num_leases == 0


async def test_the_claim_is_a_running_one_before_the_load(
    bench: Bench, version: Target, reported: Reported
) -> None:
    kinds: list[str] = []

    async def look(_: PinTarget) -> None:
        kinds.extend(pin.kind for pin in bench.store.pins(1) if pin.owner == "v1")

    bench.group.on_pin = look
    await bench.evaluator().run(run_of(version), reported)
    assert kinds == [PinKind.RUNNING]


async def test_an_attempt_has_a_sample_file_of_its_own(
    bench: Bench, version: Target, reported: Reported
) -> None:
    await bench.evaluator().run(run_of(version, "a"), reported)
    await bench.evaluator().run(run_of(version, "a", attempt=2), reported)
    assert sorted(path.name for path in (bench.samples / "v1").iterdir()) == ["a.jsonl", "a@2.jsonl"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NoSuchVersion("gone"), EndReason.VERSION_GONE),
        (CorruptVersion("a digest is off"), EndReason.CORRUPT_VERSION),
        (StoreFull("no room"), EndReason.VERSION_GONE),
        (StoreError("no database"), EndReason.VERSION_GONE),
        (LoadFailed("refused"), EndReason.LOAD_FAILED),
        (PinMismatch("other weights"), EndReason.PIN_MISMATCH),
        (EngineDied("gone"), EndReason.ENGINE_FAILED),
        (EngineTimeout("late"), EndReason.ENGINE_FAILED),
        (EngineError("odd"), EndReason.ENGINE_FAILED),
        (DatasetError("odd"), EndReason.INTERNAL),
    ],
)
async def test_what_keeps_a_target_from_the_engines_becomes_the_reason(
    bench: Bench, version: Target, reported: Reported, error: LiveEvalError, reason: EndReason
) -> None:
    assert reason_of(error) is reason
    bench.group.pins = [error]
    end = await bench.evaluator().run(run_of(version), reported)
    assert (end.reason, end.detail) == (reason, str(error))
    assert reported.lines == []
    assert bench.group.events == ["lease v1", "pin 1", "release"]


async def test_a_damaged_version_is_found_before_an_engine_sees_it(
    bench: Bench, version: Target, reported: Reported
) -> None:
    shard = next(bench.store.path(1).glob("shard-*"))
    shard.chmod(0o644)
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    end = await bench.evaluator().run(run_of(version), reported)
    assert end.reason is EndReason.CORRUPT_VERSION
    assert reported.lines == []


async def test_a_version_that_is_gone_is_no_reason_to_touch_the_engines(
    bench: Bench, reported: Reported
) -> None:
    bench.seal(1)
    end = await bench.evaluator().run(run_of(target(1)), reported)
    assert end.reason is EndReason.VERSION_GONE
    assert "given up before its evaluation could begin" in end.detail
    assert bench.group.events == ["lease v1", "release"]


async def test_a_version_that_had_to_make_room_as_its_turn_came_says_so(
    make_bench: Callable[..., Bench], tmp_path: Path, reported: Reported
) -> None:
    bench = make_bench(max_bytes=budget_beside(tmp_path / "measured", 1), keep_newest=1)
    bench.seal(1)
    bench.store.pin(1, "v1", PinKind.WAITING)
    bench.store.unpin(1, FRESH_OWNER)
    bench.seal(2)
    bench.seal(3)
    end = await bench.evaluator().run(run_of(target(1)), reported)
    assert end.reason is EndReason.STORE_FULL


async def test_a_cancel_that_comes_before_the_run_has_begun_is_heard(
    bench: Bench, version: Target, reported: Reported
) -> None:
    evaluator = bench.evaluator()
    task = asyncio.create_task(evaluator.run(run_of(version), reported))
    evaluator.cancel(("v1/a", "v1/b"), EndReason.NEWER_VERSION)
    end = await task
    assert end.reason is None
    assert reported.lines == []
    assert bench.group.events == ["lease v1", "release"]


async def test_a_cancel_during_the_load_ends_the_jobs_before_they_begin(
    bench: Bench, version: Target, reported: Reported
) -> None:
    evaluator = bench.evaluator()

    async def cancel(_: PinTarget) -> None:
        evaluator.cancel(("v1/a",), EndReason.USER)

    bench.group.on_pin = cancel
    end = await evaluator.run(run_of(version), reported)
    assert end.reason is None
    assert reported.lines == ["started v1/b", "finished v1/b: succeeded: completed"]
    assert bench.group.events == ["lease v1", "pin 1", "release"]


async def test_an_aborted_job_followed_by_another_dataset_pins_again(
    bench: Bench, version: Target, reported: Reported
) -> None:
    held = FakeSource(hold=lambda requests: True)
    sources = [held, FakeSource()]
    bench.group.make_source = lambda: sources.pop(0)
    evaluator = bench.evaluator()
    task = asyncio.create_task(evaluator.run(run_of(version), reported))
    await held.held.wait()
    evaluator.cancel(("v1/a",), EndReason.JOB_TIMEOUT)
    end = await task
    assert end.reason is None
    assert reported.lines == [
        "started v1/a",
        "finished v1/a: timed_out: job_timeout",
        "started v1/b",
        "finished v1/b: succeeded: completed",
    ]
    assert bench.group.events == ["lease v1", "pin 1", "abort", "pin 1", "release"]
    assert reported.details["v1/a"].counts.n_aborted == 4


async def test_a_pin_that_fails_after_an_abort_leaves_the_reported_job_alone(
    bench: Bench, version: Target, reported: Reported
) -> None:
    held = FakeSource(hold=lambda requests: True)
    bench.group.make_source = lambda: held
    bench.group.pins = [None, LoadFailed("refused")]
    evaluator = bench.evaluator()
    task = asyncio.create_task(evaluator.run(run_of(version), reported))
    await held.held.wait()
    evaluator.cancel(("v1/a",), EndReason.JOB_TIMEOUT)
    end = await task
    assert end.reason is EndReason.LOAD_FAILED
    assert reported.lines == ["started v1/a", "finished v1/a: timed_out: job_timeout"]


async def test_a_cancel_of_one_run_does_not_reach_the_next(
    bench: Bench, version: Target, reported: Reported
) -> None:
    evaluator = bench.evaluator()
    evaluator.cancel(("v1/a", "v1/b"), EndReason.NEWER_VERSION)
    await evaluator.run(run_of(version), reported)
    assert reported.lines == []
    await evaluator.run(run_of(version, attempt=2), reported)
    assert len(reported.lines) == 4


@pytest.mark.parametrize("where", ["lease", "report", "answer"])
async def test_a_fault_of_live_eval_itself_is_raised_and_the_lease_given_back(
    bench: Bench, version: Target, reported: Reported, where: str
) -> None:
    fault = RuntimeError("a fault")
    if where == "lease":
        bench.group.on_lease = fault
    elif where == "report":
        reported.fault = fault
    else:
        bench.group.make_source = lambda: FakeSource(checks=[fault])
    with pytest.raises((RuntimeError, ExceptionGroup)):
        await bench.evaluator().run(run_of(version), reported)
    assert bench.group.num_leases == 0


async def test_a_task_that_is_cancelled_gives_the_lease_back(
    bench: Bench, version: Target, reported: Reported
) -> None:
    held = FakeSource(hold=lambda requests: True)
    bench.group.make_source = lambda: held
    task = asyncio.create_task(bench.evaluator().run(run_of(version), reported))
    await held.held.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.group.num_leases == 0
    assert bench.group.events[-2:] == ["abort", "release"]


async def test_a_checkpoint_is_pinned_by_its_path_under_a_label_of_its_own(
    bench: Bench, reported: Reported, tmp_path: Path
) -> None:
    path = Model(seed=5).write(tmp_path / "ckpt")
    checkpoint = CheckpointTarget(path=str(path), number=3)
    pinned: list[PinTarget] = []

    async def keep(found: PinTarget) -> None:
        pinned.append(found)

    bench.group.on_pin = keep
    await bench.evaluator().run(run_of(checkpoint, "a"), reported)
    assert [(each.label, each.path, each.digest) for each in pinned] == [("ckpt-c3", path, "")]
    assert label_of(checkpoint) == "ckpt-c3"
    assert reported.details["c3/a"].status is JobStatus.SUCCEEDED


async def test_an_evaluation_begins_and_ends_beside_another_that_goes_on(
    bench: Bench, reported: Reported, tmp_path: Path
) -> None:
    runs = [
        replace(run_of(CheckpointTarget(path=str(path), number=seed), "a"), num_engines=1)
        for seed in (1, 2)
        for path in (Model(seed=seed).write(tmp_path / f"step_{seed}"),)
    ]
    held = FakeSource(hold=lambda _: True)
    sources = [held, FakeSource()]
    bench.group.make_source = lambda: sources.pop(0)
    evaluator = bench.evaluator()
    first = asyncio.create_task(evaluator.run(runs[0], reported))
    await held.held.wait()
    assert (await evaluator.run(runs[1], reported)).reason is None
    assert reported.details["c2/a"].engine_labels == ("ckpt-c2",)
    evaluator.cancel(("c1/a",), EndReason.USER)
    assert (await first).reason is None
    assert reported.lines == [
        "started c1/a",
        "started c2/a",
        "finished c2/a: succeeded: completed",
        "finished c1/a: cancelled: user",
    ]
    assert [event for event in bench.group.events if event.startswith("lease")] == [
        "lease c1 on 1",
        "lease c2 on 1",
    ]
    assert bench.group.num_leases == 0
