"""Makes figures of what was measured of one size at one place: each time over another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.figures import Figure, Measured, Shown
from benchmarks.suite import COMPUTES, EXPORT, MOVES, OURS

if TYPE_CHECKING:
    from benchmarks.suite import Measurements

COPY_GOAL = 1.2
SEAL_GOAL = 1.25
PEERS = {
    EXPORT: "safetensors save_file, 1 thread",
    "async_save": "torch.distributed.checkpoint.async_save",
    "ray.put": "ray.put of the bytes, 6 threads",
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


def _step_costs(found: Measurements, threads: str, memcpy: _Peer) -> Iterator[Shown]:
    """What updates take from a training step: a sync, and a copy beside which a neighbour works."""
    cost = found.step_cost(OURS)
    yield _shown(found, f"sync step cost, {threads}", cost, memcpy, COPY_GOAL)
    computes = f"step cost of memcpy, then a neighbour that computes {found.background_s:.2g} s"
    yield _shown(found, computes, found.step_cost(COMPUTES), memcpy)
    moves = "step cost of memcpy, then a neighbour that copies twice and hashes twice"
    moved = _peer(found, moves, found.step_cost(MOVES))
    yield _shown(found, moves, moved.times, memcpy)
    yield _shown(found, "sync step cost over that of a neighbour that copies and hashes", cost, moved)
    theirs = _peer(found, f"step cost of {PEERS[EXPORT]}", found.step_cost(EXPORT))
    yield _shown(found, "sync step cost over export", cost, theirs)
    if found.num_threads > 1:
        return
    used = _peer(found, "memcpy, processor time of 1 thread", found.memcpy_thread)
    what = "processor time of the training thread"
    yield _shown(found, f"sync step cost, {what}", found.thread_cost(OURS), used)
    yield _shown(found, f"a neighbour that computes, {what}", found.thread_cost(COMPUTES), used)
    yield _shown(found, f"a neighbour that copies and hashes, {what}", found.thread_cost(MOVES), used)


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
