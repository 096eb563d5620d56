"""The loop between store, scheduler, engines and ledger: what each event leads to in the records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.checkpoints import Model, sync_begin
from fakes.job_bench import budget_beside
from fakes.source import FakeSource

from live_eval.errors import (
    AlreadyEnded,
    ConfigError,
    CorruptVersion,
    EngineDied,
    LoadFailed,
    NoSuchJob,
)
from live_eval.reasons import DiscardReason, JobStatus
from live_eval.store.records import FRESH_OWNER, PinKind

if TYPE_CHECKING:
    from fakes.job_bench import Bench

    from live_eval.engines.pin import PinTarget

COMPLETED = "succeeded: completed"


class Gate:
    """Keeps the answers to a dataset's prompts back until the run is aborted."""

    def __init__(self, bench: Bench, *datasets: str) -> None:
        self.held = asyncio.Event()
        self._datasets = datasets
        bench.group.make_source = self._source

    def _source(self) -> FakeSource:
        return FakeSource(
            hold=lambda requests: any((r.text or "").startswith(self._datasets) for r in requests),
            held=self.held,
        )

    def open(self) -> None:
        """Hold nothing from the next call on."""
        self._datasets = ("nothing",)


# --- versions become jobs -------------------------------------------------------------------


async def test_every_sealed_version_is_evaluated_on_all_datasets(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(on_update="queue")
    for version in (1, 2):
        bench.seal(version)
    await bench.run_to_the_end()
    assert bench.ends == dict.fromkeys(("v1/a", "v1/b", "v2/a", "v2/b"), COMPLETED)
    assert bench.group.events == ["lease v1", "pin 1", "release", "lease v2", "pin 2", "release"]
    assert bench.owners == set()


async def test_a_poke_is_enough_to_see_a_version(bench: Bench) -> None:
    async with bench.life() as coordinator:
        bench.seal(1)
        coordinator.poke()
        await bench.until(lambda: len(bench.ends) == 2)


async def test_a_version_is_seen_without_a_poke(bench: Bench) -> None:
    async with bench.life():
        await asyncio.sleep(0.05)
        bench.seal(1)
        await bench.until(lambda: len(bench.ends) == 2)


async def test_discards_and_versions_are_recorded_for_the_sinks(bench: Bench) -> None:
    bench.store.begin(sync_begin(1)).discard(DiscardReason.INCOMPLETE, "one tensor")
    bench.seal(2)
    bench.store.note_held("life-1", 3, 0.75)
    bench.store.sync_refused(sync_begin(3), DiscardReason.PUBLISHER_DEADLINE)
    await bench.run_to_the_end()
    await bench.run_to_the_end()
    events = [row.event for row in bench.ledger.outbox() if row.event is not None]
    assert sorted((event.key, event.reason, event.held_s or 0.0) for event in events) == [
        ("discarded/v1", "incomplete", 0.0),
        ("refused/life-1/3/1", "publisher_deadline", 0.75),
        ("sealed/v2", "", 0.5),
    ]


async def test_a_version_that_had_to_make_room_is_recorded_as_dropped(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make_bench(
        max_bytes=budget_beside(tmp_path / "measured", 2), keep_newest=1, on_update="queue", datasets=("a",)
    )
    gate = Gate(bench, "a")
    async with bench.life() as coordinator:
        bench.seal(1)
        coordinator.poke()
        await gate.held.wait()
        for version in (2, 3, 4):
            bench.seal(version)
        coordinator.poke()
        await bench.until(lambda: "v2/a" in bench.ends)
    assert bench.ends["v2/a"] == "dropped: store_full"
    assert "dropped/v2" in {row.key for row in bench.ledger.outbox()}


async def test_versions_of_an_ended_incarnation_that_wait_are_superseded(bench: Bench) -> None:
    gate = Gate(bench, "a")
    async with bench.life() as coordinator:
        bench.seal(1, life="one")
        coordinator.poke()
        await gate.held.wait()
        bench.seal(2, life="one")
        coordinator.poke()
        bench.seal(1, life="two")
        coordinator.poke()
        await bench.until(lambda: "v2/a" in bench.ends)
    assert bench.ends["v2/a"].startswith("superseded: ")


async def test_backlog_of_cancel_at_a_start_runs_the_newest_version(make_bench: Callable[..., Bench]) -> None:
    """All versions are seen in one look: each but the last is cancelled before its run has begun."""
    bench = make_bench(on_update="cancel", datasets=("a",))
    for version in (1, 2, 3):
        bench.seal(version)
    await bench.run_to_the_end()
    assert bench.ends == {
        "v1/a": "cancelled: newer_version",
        "v2/a": "superseded: newer_version",
        "v3/a": COMPLETED,
    }
    assert [event for event in bench.group.events if event.startswith("pin")] == ["pin 3"]


async def test_cancel_aborts_the_running_version_and_keeps_its_partial_apart(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(on_update="cancel", datasets=("a",))
    gate = Gate(bench, "a1")
    async with bench.life() as coordinator:
        bench.seal(1)
        coordinator.poke()
        await gate.held.wait()
        gate.open()
        bench.seal(2)
        coordinator.poke()
        await bench.until(lambda: len(bench.ends) == 2)
    assert bench.ends == {"v1/a": "cancelled: newer_version", "v2/a": COMPLETED}
    cut = bench.ledger.result("v1/a")
    assert cut is not None
    assert (cut.score, cut.metrics) == (None, {})
    assert cut.n_aborted > 0


# --- faults of engines, stores and evaluations ----------------------------------------------


async def test_a_load_that_fails_once_is_tried_again(bench: Bench) -> None:
    bench.group.pins = [LoadFailed("refused")]
    bench.seal(1)
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED, "v1/b": COMPLETED}
    assert {row.attempt for row in bench.ledger.jobs()} == {2}


async def test_engines_that_stay_dead_fail_the_version_and_not_the_service(bench: Bench) -> None:
    bench.group.pins = [EngineDied("gone"), EngineDied("still gone")]
    bench.seal(1)
    await bench.run_to_the_end()
    assert set(bench.ends.values()) == {"failed: engine_failed"}
    result = bench.ledger.result("v1/a")
    assert result is not None
    assert result.detail == "still gone"


async def test_a_damaged_version_fails_and_the_next_one_runs(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(on_update="queue", datasets=("a",))
    bench.seal(1)
    bench.seal(2)
    shard = next(bench.store.path(1).glob("shard-*"))
    shard.chmod(0o644)
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": "failed: corrupt_version", "v2/a": COMPLETED}


async def test_an_evaluation_that_raises_fails_as_internal_and_the_next_one_runs(
    make_bench: Callable[..., Bench], caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench(on_update="queue")
    faulty = [RuntimeError("nobody expected this"), None]

    async def on_pin(_: PinTarget) -> None:
        if error := faulty.pop(0):
            raise error

    bench.group.on_pin = on_pin
    bench.seal(1)
    bench.seal(2)
    await bench.run_to_the_end()
    assert bench.ends == {
        "v1/a": "failed: internal",
        "v1/b": "failed: internal",
        "v2/a": COMPLETED,
        "v2/b": COMPLETED,
    }
    result = bench.ledger.result("v1/a")
    assert result is not None
    assert result.detail == "RuntimeError: nobody expected this"
    assert "evaluation v1 failed" in caplog.text


async def test_an_evaluation_that_raises_after_a_job_leaves_that_job_alone(bench: Bench) -> None:
    sources = [FakeSource(checks=[None, RuntimeError("a fault")])]
    bench.group.make_source = lambda: sources[0]
    bench.seal(1)
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED, "v1/b": "failed: internal"}


# --- checkpoints ----------------------------------------------------------------------------


async def test_a_named_checkpoint_is_evaluated(bench: Bench, tmp_path: Path) -> None:
    path = Model(seed=5).write(tmp_path / "step_200")
    async with bench.life() as coordinator:
        assert coordinator.submit_checkpoint(str(path), ["b"]) == ("c1/b",)
        await bench.until(lambda: "c1/b" in bench.ends)
    result = bench.ledger.result("c1/b")
    assert result is not None
    assert (result.checkpoint, result.train_step, result.score) == (str(path), 200, 1.0)
    assert bench.group.events[1] == "pin ckpt-c1"


async def test_a_checkpoint_that_cannot_be_is_refused_and_the_loop_goes_on(
    bench: Bench, tmp_path: Path
) -> None:
    good = Model(seed=5).write(tmp_path / "good")
    async with bench.life() as coordinator:
        with pytest.raises(CorruptVersion):
            coordinator.submit_checkpoint(str(tmp_path / "nothing"))
        with pytest.raises(ConfigError, match="no dataset"):
            coordinator.submit_checkpoint(str(good), ["unknown"])
        assert coordinator.submit_checkpoint(str(good), ["a"]) == ("c1/a",)
        await bench.until(lambda: "c1/a" in bench.ends)
    assert bench.ends == {"c1/a": COMPLETED}


async def test_a_running_job_that_a_user_cancels_ends_so_and_the_others_go_on(bench: Bench) -> None:
    gate = Gate(bench, "a")
    bench.seal(1)
    async with bench.life() as coordinator:
        await gate.held.wait()
        assert coordinator.cancel("v1/a") is JobStatus.RUNNING
        gate.open()
        await bench.until(lambda: len(bench.ends) == 2)
        with pytest.raises(AlreadyEnded, match=r"v1/a has ended: cancelled \(user\)"):
            coordinator.cancel("v1/a")
        with pytest.raises(NoSuchJob):
            coordinator.cancel("v2/a")
    assert bench.ends == {"v1/a": "cancelled: user", "v1/b": COMPLETED}


async def test_a_priority_that_cannot_be_is_refused(bench: Bench, tmp_path: Path) -> None:
    path = Model(seed=5).write(tmp_path / "good")
    async with bench.life() as coordinator:
        with pytest.raises(ConfigError, match="priority is 101: give -100 to 100"):
            coordinator.submit_checkpoint(str(path), priority=101)
        coordinator.submit_checkpoint(str(path), priority=100)
        assert bench.ledger.priorities() == {"c1": 100}


# --- the end --------------------------------------------------------------------------------


async def test_a_shutdown_ends_all_jobs_and_frees_the_engines(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(on_update="queue", datasets=("a",))
    gate = Gate(bench, "a")
    bench.seal(1)
    bench.seal(2)
    async with bench.life() as coordinator:
        await gate.held.wait()
        coordinator.shutdown()
    assert bench.ends == {"v1/a": "cancelled: shutdown", "v2/a": "cancelled: shutdown"}
    assert bench.group.num_leases == 0
    assert bench.owners == set()


async def test_the_last_version_is_evaluated_though_it_is_not_due(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(interval=5, datasets=("a",))
    bench.seal(1)
    bench.seal(2, rollout_id=0)
    bench.seal(3, rollout_id=1)
    await bench.run_to_the_end()
    assert bench.ends["v3/a"] == COMPLETED
    assert "v2/a" not in bench.ends


async def test_nothing_was_ever_sealed_and_training_ended(bench: Bench) -> None:
    await bench.run_to_the_end()
    assert bench.ends == {}


async def test_status_says_what_runs_and_what_waits(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(on_update="queue", datasets=("a",))
    gate = Gate(bench, "a")
    async with bench.life() as coordinator:
        assert coordinator.status().state == "serving"
        bench.seal(1)
        bench.seal(2)
        coordinator.poke()
        await gate.held.wait()
        status = coordinator.status()
        assert (status.running, status.waiting, status.stable_version) == (("v1/a",), ("v2/a",), 2)
        assert status.num_finished == 0
        coordinator.training_ended()
        assert coordinator.status().state == "draining"
    status = coordinator.status()
    assert (status.state, status.running, status.waiting, status.num_finished) == ("finished", (), (), 2)


async def test_a_version_keeps_its_first_claim_until_somebody_else_has_one(
    make_bench: Callable[..., Bench],
) -> None:
    # With room for the newest alone a moment without any claim would be the end of version 1.
    bench = make_bench(on_update="queue", datasets=("a",), keep_newest=1)
    gate = Gate(bench, "a")
    bench.seal(1)
    bench.seal(2)
    assert bench.owners == {(1, FRESH_OWNER), (2, FRESH_OWNER)}
    async with bench.life():
        await gate.held.wait()
        assert bench.owners == {(1, "v1"), (2, "v2")}
        assert {pin.owner: pin.kind for pin in bench.store.pins()} == {
            "v1": PinKind.RUNNING,
            "v2": PinKind.WAITING,
        }
