"""What a new life makes of what an old one left, written by hand as a kill leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from fakes.checkpoints import Model
from fakes.job_bench import target
from fakes.source import FakeSource, dies

from live_eval.errors import EngineDied
from live_eval.reasons import EndReason, JobStatus
from live_eval.results.reader import PRIORITIES
from live_eval.store.records import FRESH_OWNER, PinKind
from live_eval.targets import CheckpointTarget

if TYPE_CHECKING:
    from fakes.job_bench import Bench

    from live_eval.targets import Target

COMPLETED = "succeeded: completed"


def left_waiting(bench: Bench, version: int, *datasets: str) -> None:
    """Jobs were made, the version claimed; no engine has seen it."""
    bench.ledger.create_jobs(target(version), datasets or bench.config.datasets, now=1.0)
    bench.store.pin(version, f"v{version}", PinKind.WAITING)
    bench.store.unpin(version, FRESH_OWNER)


def left_running(bench: Bench, version: int, *running: str) -> None:
    """As waiting, and these jobs were running."""
    left_waiting(bench, version)
    bench.store.upgrade(version, f"v{version}")
    for dataset in running:
        bench.ledger.start(f"v{version}/{dataset}", now=2.0)


def end(bench: Bench, job_id: str, status: JobStatus, reason: EndReason) -> None:
    """The job's result is durable."""
    result = bench.ledger.outcome(job_id, status=status, reason=reason, now=3.0)
    score = 0.25 if status is JobStatus.SUCCEEDED else None
    bench.ledger.finish(msgspec.structs.replace(result, score=score))


def pins_of(bench: Bench) -> list[str]:
    return [event for event in bench.group.events if event.startswith("pin")]


async def test_a_job_that_was_running_runs_again_as_its_second_attempt(bench: Bench) -> None:
    bench.seal(1)
    left_running(bench, 1, "a")
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED, "v1/b": COMPLETED}
    assert [(row.job_id, row.attempt) for row in bench.ledger.jobs()] == [("v1/a", 2), ("v1/b", 1)]
    moves = [(move.to_status, move.reason) for move in bench.ledger.transitions("v1/a")]
    assert moves[1:3] == [("running", ""), ("waiting", "service_restarted")]
    assert [move for move, _ in moves] == ["waiting", "running", "waiting", "running", "succeeded"]


def runs_in(path: Path) -> list[int]:
    """The attempt that made each sample of a file, in order."""
    return [json.loads(line)["run"] for line in path.read_bytes().splitlines()]


async def test_an_attempt_goes_on_with_the_samples_of_the_one_whose_engine_was_lost(bench: Bench) -> None:
    bench.seal(1)
    sources = [FakeSource(script=[None, dies(EngineDied("gone"))], repins=[EngineDied("no engine")])]
    bench.group.make_source = lambda: sources.pop() if sources else FakeSource()
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED, "v1/b": COMPLETED}
    assert runs_in(bench.samples / "v1" / "a@2.jsonl") == [1, 1, 2, 2]


async def test_a_new_life_takes_up_only_what_was_made_with_the_same_weights(bench: Bench) -> None:
    def left_behind(version: int, like: Path) -> Path:
        """A running job of this version, with the first samples of a file."""
        left_running(bench, version, "a")
        path = bench.samples / f"v{version}" / "a.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(like.read_bytes().replace(b'"1"', b'"%d"' % version).splitlines(True)[:3]))
        return path.with_name("a@2.jsonl")

    bench.seal(1)
    await bench.run_to_the_end()
    bench.seal(2)
    after = left_behind(2, bench.samples / "v1" / "a.jsonl")
    await bench.run_to_the_end()
    assert runs_in(after) == [2, 2, 2, 2]


async def test_a_durable_result_is_not_measured_again(bench: Bench) -> None:
    bench.seal(1)
    left_running(bench, 1, "a")
    end(bench, "v1/a", JobStatus.SUCCEEDED, EndReason.COMPLETED)
    await bench.run_to_the_end()
    result = bench.ledger.result("v1/a")
    assert result is not None
    assert result.score == 0.25
    assert bench.ends == {"v1/a": COMPLETED, "v1/b": COMPLETED}
    assert not (bench.samples / "v1" / "a.jsonl").exists()


async def test_a_life_that_finds_everything_done_asks_the_engines_for_nothing(bench: Bench) -> None:
    bench.seal(1)
    await bench.run_to_the_end()
    bench.group.events.clear()
    before = bench.ledger.results()
    await bench.run_to_the_end()
    assert bench.group.events == []
    assert bench.ledger.results() == before
    assert bench.owners == set()


async def test_a_job_that_was_not_made_yet_is_made(bench: Bench) -> None:
    bench.seal(1)
    left_waiting(bench, 1, "a")
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED, "v1/b": COMPLETED}


async def test_a_version_that_was_sealed_and_not_seen_is_evaluated(bench: Bench) -> None:
    bench.seal(1)
    await bench.run_to_the_end()
    bench.seal(2)
    await bench.run_to_the_end()
    assert {name for name, how in bench.ends.items() if how == COMPLETED} == {"v1/a", "v1/b", "v2/a", "v2/b"}


async def test_claims_of_a_life_that_ended_are_removed_and_those_of_others_stay(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(datasets=("a",), keep_newest=1)
    for version in (1, 2, 3, 4):
        bench.seal(version)
    left_running(bench, 1, "a")
    end(bench, "v1/a", JobStatus.SUCCEEDED, EndReason.COMPLETED)  # durable, its claim not given back
    bench.store.pin(2, "newest", PinKind.WAITING)  # the newest once
    bench.store.unpin(2, FRESH_OWNER)
    bench.store.pin(3, "somebody", PinKind.EXPORT)
    await bench.run_to_the_end()
    assert bench.owners == {(3, "somebody")}
    assert {record.policy_version for record in bench.store.sealed()} == {3, 4}


async def test_a_claim_that_is_taken_up_again_is_a_waiting_one_until_the_load(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(datasets=("a",))
    bench.seal(1)
    left_running(bench, 1, "a")
    async with bench.life():
        assert [(pin.owner, pin.kind) for pin in bench.store.pins()] == [("v1", PinKind.WAITING)]


async def test_a_version_whose_files_went_meanwhile_fails_as_gone(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(datasets=("a",), keep_newest=1)
    bench.seal(1)
    left_waiting(bench, 1)
    bench.store.unpin(1, "v1")
    bench.seal(2)
    bench.store.collect()
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": "failed: version_gone", "v2/a": COMPLETED}


async def test_the_one_that_had_begun_goes_first_and_the_newest_next(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(datasets=("a",))
    for version in (1, 2, 3):
        bench.seal(version)
    left_running(bench, 1, "a")
    left_waiting(bench, 2)
    await bench.run_to_the_end()
    assert bench.ends == {"v1/a": COMPLETED, "v2/a": "superseded: newer_version", "v3/a": COMPLETED}
    assert pins_of(bench) == ["pin 1", "pin 3"]


async def test_under_queue_everything_goes_on_in_order(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(datasets=("a",), on_update="queue")
    for version in (1, 2, 3):
        bench.seal(version)
    left_running(bench, 2, "a")
    left_waiting(bench, 1)
    await bench.run_to_the_end()
    assert set(bench.ends.values()) == {COMPLETED}
    assert pins_of(bench) == ["pin 2", "pin 1", "pin 3"]


async def test_waiting_versions_of_an_incarnation_that_ended_meanwhile_are_superseded(bench: Bench) -> None:
    bench.seal(1, life="one")
    left_waiting(bench, 1)
    bench.seal(1, life="two")
    await bench.run_to_the_end()
    assert {bench.ends["v1/a"], bench.ends["v1/b"]} == {"superseded: incarnation_ended"}
    assert bench.ends["v2/a"] == COMPLETED


async def test_a_checkpoint_that_was_asked_for_is_not_forgotten(bench: Bench) -> None:
    checkpoint: Target = CheckpointTarget(
        path=str(bench.model.write(bench.samples.parent / "ckpt")),
        number=bench.ledger.next_checkpoint_number(),
    )
    bench.ledger.create_jobs(checkpoint, ["b"], now=1.0)
    await bench.run_to_the_end()
    assert bench.ends == {"c1/b": COMPLETED}


@pytest.mark.parametrize("num_kills", [1, 2, 5])
async def test_a_job_that_was_cut_any_number_of_times_completes(bench: Bench, num_kills: int) -> None:
    bench.seal(1)
    left_running(bench, 1, "a")
    for _ in range(num_kills - 1):
        bench.ledger.requeue("v1/a", now=2.0, reason=EndReason.SERVICE_RESTARTED)
        bench.ledger.start("v1/a", now=2.0)
    await bench.run_to_the_end()
    assert bench.ends["v1/a"] == COMPLETED
    assert bench.ledger.job("v1/a").attempt == num_kills + 1


async def test_checkpoints_keep_their_priority(make_bench: Callable[..., Bench], tmp_path: Path) -> None:
    bench = make_bench(datasets=("a",))
    for number, priority in ((1, 0), (2, -1), (3, 2)):
        path = Model(seed=number).write(tmp_path / f"step_{number}")
        bench.ledger.put(f"{PRIORITIES}c{number}", priority)
        bench.ledger.create_jobs(CheckpointTarget(path=str(path), number=number), ["a"], now=1.0)
    await bench.run_to_the_end()
    assert pins_of(bench) == ["pin ckpt-c3", "pin ckpt-c1", "pin ckpt-c2"]
