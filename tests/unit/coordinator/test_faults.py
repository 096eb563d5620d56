"""Faults of live-eval's own records end the loop loudly, and leave the rest to the next life."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import pytest
from fakes.checkpoints import sync_begin
from fakes.job_bench import target
from fakes.source import FakeSource

from live_eval.coordinator import feed
from live_eval.errors import LedgerError, StoreError
from live_eval.reasons import JobStatus
from live_eval.store.records import PinKind

if TYPE_CHECKING:
    from pathlib import Path

    from fakes.job_bench import Bench

    from live_eval.coordinator.coordinator import Coordinator
    from live_eval.engines.pin import PinTarget

COMPLETED = "succeeded: completed"
WAIT_S = 10.0


@contextlib.asynccontextmanager
async def broken_life(bench: Bench) -> AsyncIterator[Coordinator]:
    """A life that must end by a LedgerError."""
    coordinator = bench.coordinator()
    task = asyncio.create_task(coordinator.run())
    await asyncio.sleep(0)
    yield coordinator
    with pytest.raises(LedgerError, match="disk is full"):
        await asyncio.wait_for(task, WAIT_S)
    assert bench.group.num_leases == 0


def statuses(bench: Bench) -> dict[str, JobStatus]:
    return {row.job_id: row.status for row in bench.ledger.jobs()}


@pytest.mark.parametrize("method", ["record_version", "create_jobs", "start", "progress", "finish"])
async def test_a_ledger_that_cannot_write_ends_the_loop_and_the_next_life_completes(
    make_bench: Callable[..., Bench], method: str
) -> None:
    bench = make_bench(on_update="queue")
    for version in (1, 2):
        bench.seal(version)
    bench.ledger.fails_at = method
    async with broken_life(bench):
        pass
    assert bench.ends == {}
    assert not any(event.startswith("lease v2") for event in bench.group.events)
    bench.ledger.fails_at = ""
    await bench.run_to_the_end()
    assert bench.ends == dict.fromkeys(("v1/a", "v1/b", "v2/a", "v2/b"), COMPLETED)


async def test_a_fault_while_a_job_runs_leaves_the_job_to_the_next_life(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(on_update="queue", datasets=("a",))
    held = FakeSource(hold=lambda requests: True)
    bench.group.make_source = lambda: held
    async with broken_life(bench) as coordinator:
        bench.seal(1)
        coordinator.poke()
        await held.held.wait()
        bench.seal(2)
        bench.ledger.fails_at = "create_jobs"
        coordinator.poke()
    assert statuses(bench) == {"v1/a": JobStatus.RUNNING}
    bench.ledger.fails_at = ""
    bench.group.make_source = FakeSource
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED, "v2/a": COMPLETED}


async def test_a_fault_in_what_somebody_asked_for_ends_the_loop_as_well(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make_bench(interval=5, datasets=("a",), skip_first=True)
    checkpoint = bench.model.write(tmp_path / "ckpt")
    async with broken_life(bench) as coordinator:
        bench.ledger.fails_at = "create_jobs"
        with pytest.raises(LedgerError):
            coordinator.submit_checkpoint(str(checkpoint))
    async with broken_life(bench) as coordinator:
        bench.seal(1)
        with pytest.raises(LedgerError):
            coordinator.training_ended()
    bench.ledger.fails_at = ""
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED}


async def test_a_fault_at_the_shutdown_ends_the_loop_as_well(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(on_update="queue", datasets=("a",))
    held = FakeSource(hold=lambda requests: True)
    bench.group.make_source = lambda: held
    bench.seal(1)
    bench.seal(2)
    async with broken_life(bench) as coordinator:
        await held.held.wait()
        bench.ledger.fails_at = "finish"
        with pytest.raises(LedgerError):
            coordinator.shutdown()


async def test_a_task_that_is_cancelled_leaves_its_job_to_the_next_life(bench: Bench) -> None:
    held = FakeSource(hold=lambda requests: True)
    bench.group.make_source = lambda: held
    bench.seal(1)
    task = asyncio.create_task(bench.coordinator().run())
    await held.held.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert statuses(bench) == {"v1/a": JobStatus.RUNNING, "v1/b": JobStatus.WAITING}
    bench.group.make_source = FakeSource
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED, "v1/b": COMPLETED}


async def test_files_that_cannot_be_removed_do_not_end_the_loop(
    make_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench(on_update="queue", datasets=("a",), keep_newest=1)
    bench.store.is_stubborn = True
    for version in (1, 2):
        bench.seal(version)
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED, "v2/a": COMPLETED}
    assert "cannot be removed" in caplog.text


async def test_a_fault_of_the_very_last_removal_is_raised(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.seal(1)
    collect = bench.store.collect

    def breaks_at_the_end() -> object:
        if len(bench.ends) == 2:
            raise ValueError("a fault of live-eval itself")
        return collect()

    monkeypatch.setattr(bench.store, "collect", breaks_at_the_end)
    with pytest.raises(ValueError, match="of live-eval itself"):
        await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED, "v1/b": COMPLETED}


async def test_a_fault_of_the_restart_leaves_nothing_running(bench: Bench) -> None:
    bench.seal(1)
    bench.ledger.create_jobs(target(1), ("a", "b"), now=1.0)
    bench.store.pin(1, "v1", PinKind.WAITING)
    bench.store.pin(1, "somebody else", PinKind.WAITING)
    bench.store.is_broken = True
    with pytest.raises(StoreError, match="cannot be written"):
        await bench.coordinator().run()
    await asyncio.sleep(0.05)
    assert bench.group.events == []
    bench.store.is_broken = False
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED, "v1/b": COMPLETED}


async def test_engines_that_never_come_free_do_not_hold_up_the_end(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(datasets=("a",), abort_grace_s=0.2)
    loading = asyncio.Event()

    async def hang(_: PinTarget) -> None:
        loading.set()
        await asyncio.Event().wait()

    bench.group.on_pin = hang
    bench.group.on_release = asyncio.shield(asyncio.get_running_loop().create_future())
    bench.seal(1)
    task = asyncio.create_task((coordinator := bench.coordinator()).run())
    await loading.wait()
    coordinator.shutdown()
    await asyncio.wait_for(task, WAIT_S)
    assert bench.ends == {"v1/a": "cancelled: shutdown"}
    bench.group.on_release.cancel()


async def test_a_receiver_that_died_in_a_sync_does_not_keep_the_end_of_the_job_open(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "ABANDONED_S", 0.2)
    bench = make_bench(drain_timeout_s=3600.0)
    bench.seal(1)
    bench.store.begin(sync_begin(2))
    monkeypatch.setattr(type(bench.store), "has_writer", lambda _: False)
    await bench.run_to_the_end()
    assert bench.ends == dict.fromkeys(("v1/a", "v1/b"), COMPLETED)
