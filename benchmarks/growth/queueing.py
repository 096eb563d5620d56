"""From a sealed version to its jobs in the ledger: the real coordinator, over engines that never come free.

So every version waits, and the one before it is superseded: as many jobs are made as are ended.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from benchmarks.figures import Measured
from benchmarks.growth.curves import QUEUED, Panel
from benchmarks.growth.sealing import Sealer
from live_eval.coordinator.coordinator import Coordinator
from live_eval.coordinator.evaluator import Evaluator
from live_eval.coordinator.records import JobRecords
from live_eval.evaluation.job import RunLimits
from live_eval.results.ledger import Ledger
from live_eval.scheduling.config import SchedulerConfig
from live_eval.scheduling.scheduler import Scheduler

if TYPE_CHECKING:
    from benchmarks.growth.settings import GrowthSettings
    from live_eval.store import VersionStore

NUM_WARM_UPS = 3
"""The first version gets the engines, the second one waits, the third one supersedes it."""


class Waiting:
    """A coordinator without engines, in an event loop that turns only while it is asked something."""

    def __init__(self, store: VersionStore, ledger: Path, *, num_datasets: int) -> None:
        config = SchedulerConfig(datasets=tuple(f"set-{number}" for number in range(num_datasets)))
        self._ledger = Ledger.open(ledger, run_id="benchmarks")
        self._scheduler = Scheduler(config)
        self._coordinator = Coordinator(
            scheduler=self._scheduler,
            config=config,
            store=store,
            ledger=self._ledger,
            records=JobRecords(
                self._ledger,
                num_expected={},
                announce=lambda _: None,
                digest_of=lambda version: store.get(version).digest,
            ),
            evaluator=_evaluator(store, ledger.parent),
            end_timeout_s=1.0,
        )
        self._loop = asyncio.new_event_loop()
        self._life = self._loop.create_task(self._coordinator.run())

    def queue(self, policy_version: int) -> float:
        """Seconds from the news of a sealed version until its jobs are on record."""
        began = time.perf_counter()
        self._coordinator.poke()
        while not self._knows(f"v{policy_version}/"):
            self._loop.run_until_complete(asyncio.sleep(0))
            if self._life.done():
                self._life.result()
        return time.perf_counter() - began

    def close(self) -> None:
        """End the coordinator."""
        self._life.cancel()
        self._loop.run_until_complete(asyncio.wait([self._life]))
        self._loop.close()
        self._ledger.close()

    def _knows(self, prefix: str) -> bool:
        jobs = (*self._scheduler.running, *self._scheduler.waiting)
        return any(job.startswith(prefix) for job in jobs)


class _NoEngines:
    """They are always lent to somebody else."""

    async def lease(self, owner: str, num_engines: int | None = None) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError(f"{owner} got engines")


def _evaluator(store: VersionStore, samples: Path) -> Evaluator:
    return Evaluator(
        group=_NoEngines(),
        store=store,
        eval_sets={},
        grader_of=_no_grader,
        samples_dir=samples,
        limits=RunLimits(),
    )


def _no_grader(name: object) -> NoReturn:
    raise AssertionError(f"{name}: nothing is graded without engines")


def by_datasets(settings: GrowthSettings, place: Path) -> Panel:
    """One version after the other, with more and more datasets to be evaluated on."""
    panel = Panel("datasets", "made as many jobs as ended")
    for number in settings.datasets:
        root = place / f"datasets-{number}"
        seconds: list[float] = []
        with (
            closing(Sealer(root, num_kept=3)) as sealer,
            closing(Waiting(sealer.store, root / "ledger.sqlite", num_datasets=number)) as waiting,
        ):
            seconds = [waiting.queue(sealer.seal()) for _ in range(settings.num_rounds + NUM_WARM_UPS)]
        panel.add(QUEUED, number, Measured(seconds=seconds[NUM_WARM_UPS:]))
    return panel
