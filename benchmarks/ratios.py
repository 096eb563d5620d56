"""Makes figures of what was measured of one size at one place: each time over another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Measured, Shown
from benchmarks.suite import COMPUTES, EXPORT, KEEPS, MOVES, OURS

if TYPE_CHECKING:
    from benchmarks.suite import Measurements

COPY_GOAL = 1.2
SEAL_GOAL = 1.25
PEERS = {
    EXPORT: "safetensors save_file, 1 thread",
    "async_save": "torch.distributed.checkpoint.async_save",
    "ray.put": "ray.put of the bytes, 6 threads",
}


NEIGHBOURS = {
    COMPUTES: "computes as long as a sync goes on",
    MOVES: "copies twice and hashes twice",
    KEEPS: "copies and hashes into a new file",
}


@dataclass(frozen=True, slots=True)
class _Peer:
    """What a figure is over."""

    times: Measured
    text: str


def figures(found: Measurements) -> Iterator[Shown]:
    """The ratios of one measurement, those with a goal first."""
    threads = "1 thread" if found.num_threads == 1 else f"{found.num_threads} threads"
    memcpy = _peer(found, f"memcpy, {threads}", found.memcpy)
    digests = _peer(found, "digests alone, 1 thread", found.digests)
    held = Measured(seconds=[times.held_s for times in found.syncs])
    seal = Measured(seconds=[times.seal_s for times in found.syncs])
    commit = Measured(seconds=[times.commit_s for times in found.syncs])
    yield _shown(found, f"sync held_s, {threads}", held, memcpy, COPY_GOAL)
    yield from _step_costs(found, threads, memcpy)
    yield _shown(found, "last bucket stored -> sealed, 1 thread", seal, digests, SEAL_GOAL)
    yield _shown(found, "commit() returned -> outcome, 1 thread a side", commit, digests)
    for name, peer in PEERS.items():
        if name in found.aside or name in found.costs:
            theirs = _peer(found, f"{peer}, until it returns", found.blocked(name))
            yield _shown(found, f"sync held_s over {name}", held, theirs)
    yield _shown(found, "safetensors save_file until it returns, 1 thread", found.blocked(EXPORT), memcpy)


def _step_costs(found: Measurements, threads: str, memcpy: _Peer) -> Iterator[Shown]:
    """What updates take from a training step: a sync, and a copy beside which a neighbour works."""
    cost = found.step_cost(OURS)
    yield _shown(found, f"sync step cost, {threads}", cost, memcpy, COPY_GOAL)
    neighbours = {name: does for name, does in NEIGHBOURS.items() if name in found.costs}
    everyone = {OURS: "a sync"} | {name: f"a neighbour that {does}" for name, does in neighbours.items()}
    for name, does in neighbours.items():
        what = f"step cost of memcpy, then a neighbour that {does}"
        yield _shown(found, what, found.step_cost(name), memcpy)
    for name, does in neighbours.items():
        if name != COMPUTES:
            theirs = _peer(found, f"memcpy, then a neighbour that {does}", found.step_cost(name))
            yield _shown(found, f"sync step cost over that of a neighbour that {does}", cost, theirs)
    theirs = _peer(found, f"step cost of {PEERS[EXPORT]}", found.step_cost(EXPORT))
    yield _shown(found, "sync step cost over export", cost, theirs)
    if found.num_threads > 1:
        return
    used = _peer(found, "memcpy, processor time of 1 thread", found.memcpy_thread)
    for name, does in everyone.items():
        yield _shown(found, f"{does}: processor time of the training thread", found.thread_cost(name), used)
        yield _shown(found, f"{does}: the training thread waits for a core", found.waited(name), memcpy)


def _peer(found: Measurements, text: str, times: Measured) -> _Peer:
    return _Peer(times, f"{text}: {times.describe(found.num_bytes)}")


def _shown(found: Measurements, what: str, ours: Measured, over: _Peer, goal: float | None = None) -> Shown:
    figure = Figure(
        figure=f"{what}, {found.size}, {found.place}",
        value=round(ours.median / over.times.median, 4),
        goal=goal,
        peer=over.text,
    )
    absolute = ours.describe(found.num_bytes)
    return Shown(figure=figure, what=what, size=found.size, place=found.place, absolute=absolute)
