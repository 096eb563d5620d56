"""Measures one size of weights at one place, and makes figures of it.

Order: warm everything up, find how long a step must be to outlast what a sync does in the
background, then alternate plain steps and updates, and in each pause the copy and the digests.
So all that enters a ratio was measured within the same minute.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.figures import Figure, Measured, Shown
from benchmarks.places import describe_place, require_room
from benchmarks.site import Site, SyncTimes
from benchmarks.training import TrainingStep, Update, UpdateCost, measure_updates, seconds_of
from benchmarks.weights import Weights

if TYPE_CHECKING:
    from benchmarks.settings import Settings

NUM_WARM_UPS = 3
"""Of everything: after as many, no call asks the system for memory that it did not have before."""
COPY_GOAL = 1.2
SEAL_GOAL = 1.25
OURS = "live-eval"


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
    syncs: list[SyncTimes]

    def blocked(self, name: str) -> Measured:
        """How long an update kept the trainer."""
        return Measured(seconds=[cost.blocked_s for cost in self.costs[name]])

    def step_cost(self, name: str) -> Measured:
        """By how much longer a step with the update was."""
        return Measured(seconds=[cost.step_s for cost in self.costs[name]])

    def thread_cost(self, name: str) -> Measured:
        """By how much more processor time the training thread took in a step with the update."""
        return Measured(seconds=[cost.thread_s for cost in self.costs[name]])


def measure(settings: Settings, gigabytes: float, place: Path) -> Measurements:
    """Measure weights of this size, with everything that is written below `place`."""
    require_room(place, int(gigabytes * 1e9))
    weights = Weights.make(int(gigabytes * 1e9))
    with _directory(place) as root, _site(root, weights) as site:
        step = TrainingStep()
        memcpy = peers.Memcpy(weights, settings.num_threads)
        arrays = weights.arrays()
        updates = {
            OURS: site.update,
            "export": peers.export(weights, root),
            "async_save": peers.async_save(weights, root),
            "ray.put": peers.ray_put(arrays),
        }
        _warm_up(weights, updates)
        background_s = max(times.commit_s for times in site.times[1:])
        step_s = step.fit(min(max(settings.min_step_s, 2 * background_s), settings.max_step_s))
        site.times.clear()
        memcpy_s: list[float] = []
        memcpy_thread_s: list[float] = []
        digests_s: list[float] = []

        def between() -> None:
            weights.change(len(memcpy_s) + NUM_WARM_UPS)
            # The first of each brings back what the last step pushed out of the caches.
            memcpy.run()
            used = time.thread_time()
            memcpy_s.append(seconds_of(memcpy.run))
            memcpy_thread_s.append(time.thread_time() - used)
            peers.digest_all(arrays)
            digests_s.append(seconds_of(lambda: peers.digest_all(arrays)))

        costs = measure_updates(step, updates, settings.num_rounds, between=between)
        return Measurements(
            size=f"{weights.num_bytes / 1e9:.2g} GB",
            place=describe_place(place),
            num_bytes=weights.num_bytes,
            num_threads=settings.num_threads,
            step_s=step_s,
            memcpy=Measured(seconds=memcpy_s),
            memcpy_thread=Measured(seconds=memcpy_thread_s),
            digests=Measured(seconds=digests_s),
            costs=costs,
            syncs=list(site.times),
        )


def figures(found: Measurements) -> Iterator[Shown]:
    """The ratios of one measurement, those with a goal first."""
    threads = _threads(found.num_threads)
    memcpy = f"memcpy, {threads}: {found.memcpy.describe(found.num_bytes)}"
    digests = f"digests alone, 1 thread: {found.digests.describe(found.num_bytes)}"
    held = Measured(seconds=[times.held_s for times in found.syncs])
    seal = Measured(seconds=[times.seal_s for times in found.syncs])
    commit = Measured(seconds=[times.commit_s for times in found.syncs])
    cost = found.step_cost(OURS)

    def shown(what: str, ours: Measured, theirs: Measured, peer: str, goal: float | None = None) -> Shown:
        figure = Figure(
            figure=f"{what}, {found.size}, {found.place}",
            value=round(ours.median / theirs.median, 4),
            goal=goal,
            peer=peer,
        )
        absolute = ours.describe(found.num_bytes)
        return Shown(figure=figure, what=what, size=found.size, place=found.place, absolute=absolute)

    yield shown(f"sync held_s, {threads}", held, found.memcpy, memcpy, COPY_GOAL)
    yield shown(f"sync step cost, {threads}", cost, found.memcpy, memcpy, COPY_GOAL)
    if found.num_threads == 1:
        used = found.memcpy_thread
        text = f"memcpy, processor time of 1 thread: {used.describe(found.num_bytes)}"
        yield shown(
            "sync step cost, processor time of the training thread", found.thread_cost(OURS), used, text
        )
    yield shown("last bucket stored -> sealed, 1 thread", seal, found.digests, digests, SEAL_GOAL)
    yield shown("commit() returned -> outcome, 1 thread a side", commit, found.digests, digests)
    for name, peer in PEERS.items():
        theirs = found.blocked(name)
        text = f"{peer}, until it returns: {theirs.describe(found.num_bytes)}"
        yield shown(f"sync held_s over {name}", held, theirs, text)
    theirs = found.step_cost("export")
    text = f"step cost of {PEERS['export']}: {theirs.describe(found.num_bytes)}"
    yield shown("sync step cost over export", cost, theirs, text)


PEERS = {
    "export": "safetensors save_file, 1 thread",
    "async_save": "torch.distributed.checkpoint.async_save",
    "ray.put": "ray.put of the bytes, 6 threads",
}


def _threads(number: int) -> str:
    return "1 thread" if number == 1 else f"{number} threads"


def _warm_up(weights: Weights, updates: dict[str, Update]) -> None:
    for number in range(NUM_WARM_UPS):
        weights.change(number)
        for update in updates.values():
            update.run()
            update.finish()


@contextmanager
def _directory(place: Path) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="live-eval-bench-", dir=place))
    try:
        yield root
    finally:
        for version in root.glob("store/versions/*"):
            version.chmod(0o755)  # sealed versions are read-only, directories too
        shutil.rmtree(root)


@contextmanager
def _site(root: Path, weights: Weights) -> Iterator[Site]:
    site = Site(root, weights, name=root.name)
    try:
        yield site
    finally:
        site.close()
