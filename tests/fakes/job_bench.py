"""A coordinator over a real store and a real ledger; the engines are played by a FakeGroup."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakes.checkpoints import Model, send, sync_begin
from fakes.job_group import FakeGroup

from live_eval.coordinator.coordinator import Coordinator
from live_eval.coordinator.evaluator import Evaluator
from live_eval.coordinator.records import JobRecords
from live_eval.errors import LedgerError, StoreError
from live_eval.evaluation.datasets import EvalRow, EvalSet, EvalSetConfig
from live_eval.evaluation.job import RunLimits
from live_eval.evaluation.rewards import ExactMatch
from live_eval.results.ledger import Ledger
from live_eval.scheduling.config import SchedulerConfig
from live_eval.scheduling.scheduler import Scheduler
from live_eval.store import VersionStore
from live_eval.targets import PolicyTarget

if TYPE_CHECKING:
    from live_eval.results.rows import VersionEvent
    from live_eval.store import Manifest
    from live_eval.store.records import CollectReason, VersionRecord
    from protocol.messages import JobEvent, JobResult

WAIT_S = 20.0


class BrokenLedger(Ledger):
    """A ledger whose method `fails_at`, if one is named, raises as on a disk that is full."""

    fails_at = ""

    def create_jobs(self, *args: Any, **kwargs: Any) -> Any:
        self._fail("create_jobs")
        return super().create_jobs(*args, **kwargs)

    def start(self, *args: Any, **kwargs: Any) -> None:
        self._fail("start")
        super().start(*args, **kwargs)

    def progress(self, *args: Any, **kwargs: Any) -> None:
        self._fail("progress")
        super().progress(*args, **kwargs)

    def finish(self, result: JobResult) -> None:
        self._fail("finish")
        super().finish(result)

    def record_version(self, event: VersionEvent) -> bool:
        self._fail("record_version")
        return super().record_version(event)

    def _fail(self, method: str) -> None:
        if self.fails_at == method:
            raise LedgerError(f"cannot {method}: database or disk is full")


class StubbornStore(VersionStore):
    """A store whose `collect` raises while `is_stubborn`, as when a file cannot be removed.

    While `is_broken` its `unpin` raises, as when the catalogue cannot be written.
    """

    is_stubborn = False
    is_broken = False

    def unpin(self, policy_version: int, owner: str) -> bool:
        if self.is_broken:
            raise StoreError("the catalogue cannot be written")
        return super().unpin(policy_version, owner)

    def collect(self) -> list[tuple[int, CollectReason]]:
        if self.is_stubborn:
            raise StoreError("the files of policy version 1 cannot be removed")
        return super().collect()


class Bench:
    """One run directory. Every `life` is a service of it; what a life leaves is the next one's start."""

    def __init__(
        self,
        root: Path,
        *,
        max_bytes: int = 1 << 30,
        keep_newest: int = 100,
        num_rows: int = 4,
        **settings: Any,
    ) -> None:
        self.config = SchedulerConfig(**{"datasets": ("a", "b"), **settings})
        self.group = FakeGroup()
        self.model = Model()
        self.store = StubbornStore.open(
            root / "store",
            base=self.model.base(root / "base"),
            max_bytes=max_bytes,
            keep_newest=keep_newest,
            writer=True,
        )
        """The receiver's and the service's at once."""
        self.ledger = BrokenLedger.open(root / "ledger.sqlite", run_id="run")
        self.events: list[JobEvent] = []
        self.listener: Callable[[JobEvent], None] | None = None
        """Told of each event too."""
        self.samples = root / "samples"
        self._eval_sets = {name: eval_set(name, num_rows) for name in self.config.datasets}

    def close(self) -> None:
        """Close both databases."""
        self.ledger.close()
        self.store.close()

    def seal(self, weight_version: int, *, rollout_id: int | None = None, life: str = "life-1") -> Manifest:
        """One whole sync, which held the trainer for a quarter of a second a version."""
        self.store.note_held(life, weight_version, weight_version / 4)
        staged = self.store.begin(sync_begin(weight_version, incarnation=life, rollout_id=rollout_id))
        send(staged, self.model, seed=weight_version)
        return staged.seal()

    def coordinator(self) -> Coordinator:
        """A new service's coordinator; nothing has happened yet."""
        return Coordinator(
            scheduler=Scheduler(self.config),
            config=self.config,
            store=self.store,
            ledger=self.ledger,
            records=JobRecords(
                self.ledger,
                num_expected={name: each.num_expected for name, each in self._eval_sets.items()},
                announce=self._announce,
                digest_of=lambda version: self.store.get(version).digest,
            ),
            evaluator=self.evaluator(),
            end_timeout_s=1.0,
        )

    def _announce(self, event: JobEvent) -> None:
        self.events.append(event)
        if self.listener is not None:
            self.listener(event)

    def evaluator(self) -> Evaluator:
        """Of the fake group."""
        return Evaluator(
            group=self.group,  # type: ignore[arg-type]
            store=self.store,
            eval_sets=self._eval_sets,
            grader_of=lambda _: ExactMatch(),
            samples_dir=self.samples,
            limits=RunLimits(abort_timeout_s=1.0, grace_s=0.2),
        )

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Coordinator]:
        """A running coordinator; shut down at the end if it has not ended by itself."""
        coordinator = self.coordinator()
        task = asyncio.create_task(coordinator.run())
        try:
            await asyncio.sleep(0)
            yield coordinator
            if not task.done():
                coordinator.shutdown()
            await asyncio.wait_for(asyncio.shield(task), WAIT_S)
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to be so."""
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110 - the condition is a question to a database
                await asyncio.sleep(0.005)

    async def run_to_the_end(self) -> None:
        """A life in which training has ended."""
        coordinator = self.coordinator()
        task = asyncio.create_task(coordinator.run())
        await asyncio.sleep(0)
        coordinator.training_ended()
        await asyncio.wait_for(task, WAIT_S)

    # --- what came of it --------------------------------------------------------------------

    @property
    def ends(self) -> dict[str, str]:
        """Job -> `status: reason` of those that ended."""
        return {result.job_id: f"{result.status}: {result.reason}" for result in self.ledger.results()}

    @property
    def owners(self) -> set[tuple[int, str]]:
        """(version, owner) of every claim in the store."""
        return {(pin.policy_version, pin.owner) for pin in self.store.pins()}

    def record(self, version: int) -> VersionRecord:
        """The catalogue's row."""
        return self.store.get(version)


def eval_set(name: str, num_rows: int) -> EvalSet:
    """Rows a0, a1, ... whose right answers are A0, A1, ..., as FakeSource answers."""
    rows = tuple(
        EvalRow(row_id=f"r{i}", line=i + 1, prompt=f"{name}{i}", label=f"{name}{i}".upper())
        for i in range(num_rows)
    )
    return EvalSet(config=EvalSetConfig(name=name, path=Path(f"{name}.jsonl")), rows=rows)


def target(version: int, *, incarnation: int = 1) -> PolicyTarget:
    """What the coordinator makes of a version sealed by Bench.seal."""
    return PolicyTarget(
        policy_version=version, incarnation=incarnation, weight_version=version, train_step=10 * version
    )


def budget_beside(root: Path, num_sealed: int) -> int:
    """Bytes that hold so many sealed versions of the bench's model and one that is being received."""
    bench = Bench(root)
    try:
        bench.seal(1)
        sealed = bench.store.used_bytes()
        bench.store.begin(sync_begin(2))
        return bench.store.used_bytes() + (num_sealed - 1) * sealed + sealed // 2
    finally:
        bench.close()
