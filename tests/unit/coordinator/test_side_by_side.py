"""Several checkpoints at once, over a real store and a real ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.checkpoints import Model
from fakes.source import FakeSource

from live_eval.reasons import JobStatus

if TYPE_CHECKING:
    from fakes.job_bench import Bench

COMPLETED = "succeeded: completed"


@pytest.fixture
def shared(make_bench: Callable[..., Bench], tmp_path: Path) -> Bench:
    """Two engines, one for each checkpoint; every run is held until it is aborted."""
    bench = make_bench(datasets=("a",), on_update="queue", num_engines=2, engines_per_eval=1)
    bench.group.make_source = lambda: FakeSource(hold=lambda _: True)
    return bench


def paths(tmp_path: Path, num: int) -> list[str]:
    return [str(Model(seed=seed).write(tmp_path / f"step_{seed}")) for seed in range(1, num + 1)]


def running(bench: Bench) -> list[str]:
    return [job.job_id for job in bench.ledger.jobs() if job.status is JobStatus.RUNNING]


async def test_two_checkpoints_run_at_once_and_a_version_waits_for_all_engines(
    shared: Bench, tmp_path: Path
) -> None:
    async with shared.life() as coordinator:
        for path in paths(tmp_path, 3):
            coordinator.submit_checkpoint(path)
        await shared.until(lambda: running(shared) == ["c1/a", "c2/a"])
        status = coordinator.status()
        assert (status.running, status.waiting) == (("c1/a", "c2/a"), ("c3/a",))
        shared.seal(1)
        coordinator.poke()
        coordinator.cancel("c2/a")
        await shared.until(lambda: "c2/a" in shared.ends)
        assert running(shared) == ["c1/a"]
        assert coordinator.status().waiting == ("v1/a", "c3/a")
        shared.group.make_source = FakeSource
        coordinator.cancel("c1/a")
        await shared.until(lambda: len(shared.ends) == 4)
    assert shared.ends == {
        "c2/a": "cancelled: user",
        "c1/a": "cancelled: user",
        "v1/a": COMPLETED,
        "c3/a": COMPLETED,
    }
    leases = [event for event in shared.group.events if event.startswith("lease")]
    assert leases == ["lease c1 on 1", "lease c2 on 1", "lease v1", "lease c3 on 1"]
    assert shared.group.num_leases == 0


async def test_a_service_that_dies_leaves_all_that_ran_to_the_next_life(
    shared: Bench, tmp_path: Path
) -> None:
    coordinator = shared.coordinator()
    life = asyncio.create_task(coordinator.run())
    await asyncio.sleep(0)
    for path in paths(tmp_path, 2):
        coordinator.submit_checkpoint(path)
    await shared.until(lambda: len(running(shared)) == 2)
    life.cancel()
    await asyncio.wait([life])
    assert shared.group.num_leases == 0
    assert shared.ends == {}
    shared.group.make_source = FakeSource
    await shared.run_to_the_end()
    assert shared.ends == {"c1/a": COMPLETED, "c2/a": COMPLETED}
    assert [job.attempt for job in shared.ledger.jobs()] == [2, 2]


async def test_a_shutdown_ends_all_that_run(shared: Bench, tmp_path: Path) -> None:
    async with shared.life() as coordinator:
        for path in paths(tmp_path, 2):
            coordinator.submit_checkpoint(path)
        await shared.until(lambda: len(running(shared)) == 2)
    assert shared.ends == dict.fromkeys(("c1/a", "c2/a"), "cancelled: shutdown")
    assert shared.group.num_leases == 0


async def test_engines_that_are_given_up_let_fewer_run_at_once(shared: Bench, tmp_path: Path) -> None:
    async with shared.life() as coordinator:
        coordinator.engines_left(1)
        for path in paths(tmp_path, 2):
            coordinator.submit_checkpoint(path)
        await shared.until(lambda: len(running(shared)) == 1)
        assert coordinator.status().waiting == ("c2/a",)
