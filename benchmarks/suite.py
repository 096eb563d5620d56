"""Measures one size of weights at one place.

Order: warm everything up, find how long a step must be to outlast what a sync does in the
background, then alternate plain steps and updates, and in each pause the copy and the digests.
So all that enters a ratio was measured within the same minutes.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.figures import Measured
from benchmarks.neighbour import Neighbour
from benchmarks.places import describe_place, directory
from benchmarks.site import Site, SyncTimes
from benchmarks.training import TrainingStep, UpdateCost, measure_updates, seconds_of
from benchmarks.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.settings import Settings
    from benchmarks.update import Update

NUM_WARM_UPS = 5
"""Of everything: after as many, no call asks the system for memory that it did not have before."""
NUM_COLD = 3
"""Of these, syncs until a store that keeps one version writes into the files of one that went."""
STEP_OVER_BACKGROUND = 1.8
"""A step is so much longer than what a sync does in the background, which is slower beside a step."""
OURS, EXPORT, COMPUTES, MOVES, KEEPS = "live-eval", "export", "computes", "moves", "keeps"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurements:
    """All times of one size at one place."""

    size: str
    place: str
    num_bytes: int
    num_threads: int
    step_s: float
    memcpy: Measured
    memcpy_thread: Measured
    """Processor time of the calling thread in the same copies."""
    digests: Measured
    costs: dict[str, list[UpdateCost]]
    aside: dict[str, list[float]]
    """How long updates that no step follows kept the trainer."""
    syncs: list[SyncTimes]
    background_s: float
    """What a sync does beside the trainer where nothing else runs; so long does a neighbour compute."""

    def blocked(self, name: str) -> Measured:
        """How long an update kept the trainer."""
        return Measured(seconds=self.aside.get(name) or [cost.blocked_s for cost in self.costs[name]])

    def step_cost(self, name: str) -> Measured:
        """By how much longer a step with the update was."""
        return Measured(seconds=[cost.step_s for cost in self.costs[name]])

    def thread_cost(self, name: str) -> Measured:
        """By how much more processor time the training thread took in a step with the update."""
        return Measured(seconds=[cost.thread_s for cost in self.costs[name]])

    def waited(self, name: str) -> Measured:
        """For how much longer the training thread waited for a core in a step with the update."""
        return Measured(seconds=[cost.waited_s for cost in self.costs[name]])


def measure(settings: Settings, gigabytes: float, place: Path, *, with_peers: bool = True) -> Measurements:
    """Measure weights of this size, with everything that is written below `place`.

    Without `with_peers` those are left out that keep copies of their own. Neighbours that write nothing are
    measured at the first place alone.
    """
    weights = Weights.make(int(gigabytes * 1e9))
    memcpy = peers.Memcpy(weights, settings.num_threads)
    with ExitStack() as stack:
        root = stack.enter_context(directory(place))
        site = stack.enter_context(closing(Site(root, weights, name=root.name)))
        neighbour = stack.enter_context(closing(Neighbour(memcpy.run, weights.num_bytes)))
        updates = {
            OURS: site.update,
            EXPORT: peers.export(weights, root),
            KEEPS: neighbour.keeping(root / "kept"),
        }
        if place == settings.places[0]:
            updates[MOVES] = neighbour.moving()
        aside = _aside(weights, root) if with_peers else {}
        _warm_up(weights, updates | aside)
        background_s = max(times.commit_s for times in site.times[NUM_COLD:])
        if MOVES in updates:
            updates[COMPUTES] = neighbour.computing(background_s)
        site.times.clear()
        step = TrainingStep()
        seconds = min(max(settings.min_step_s, STEP_OVER_BACKGROUND * background_s), settings.max_step_s)
        step_s = step.fit(seconds)
        pauses = _Pauses(weights, memcpy)
        num_rounds = settings.rounds_of(gigabytes)
        costs, blocked = measure_updates(step, updates, num_rounds, aside=aside, between=pauses.run)
        return Measurements(
            size=f"{weights.num_bytes / 1e9:.2g} GB",
            place=describe_place(place),
            num_bytes=weights.num_bytes,
            num_threads=settings.num_threads,
            step_s=step_s,
            memcpy=Measured(seconds=pauses.memcpy_s),
            memcpy_thread=Measured(seconds=pauses.memcpy_thread_s),
            digests=Measured(seconds=pauses.digests_s),
            costs=costs,
            aside=blocked,
            syncs=list(site.times),
            background_s=background_s,
        )


class _Pauses:
    """What is done between steps: dirty pages to the disk, other bytes in the weights, a copy, digests."""

    def __init__(self, weights: Weights, memcpy: peers.Memcpy) -> None:
        self._weights = weights
        self._memcpy = memcpy
        self._arrays = weights.arrays()
        self.memcpy_s: list[float] = []
        self.memcpy_thread_s: list[float] = []
        self.digests_s: list[float] = []

    def run(self) -> None:
        os.sync()  # exports return before the disk has them; what is timed next is not to be beside that
        self._weights.change(len(self.memcpy_s) + NUM_WARM_UPS)
        # The first of each brings back what the last step pushed out of the caches.
        self._memcpy.run()
        used = time.thread_time()
        self.memcpy_s.append(seconds_of(self._memcpy.run))
        self.memcpy_thread_s.append(time.thread_time() - used)
        peers.digest_all(self._arrays)
        self.digests_s.append(seconds_of(lambda: peers.digest_all(self._arrays)))


def _aside(weights: Weights, root: Path) -> dict[str, Update]:
    return {"async_save": peers.async_save(weights, root), "ray.put": peers.ray_put(weights.arrays())}


def _warm_up(weights: Weights, updates: dict[str, Update]) -> None:
    for number in range(NUM_WARM_UPS):
        weights.change(number)
        for update in updates.values():
            update.run()
            update.finish()
