"""A whole small job in one run directory, and what a test does to it.

trainer (this process) --> receiver (this process, or a Ray actor) --> store
service (a process of its own) --> engine (shared by tests, or launched by the service)
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.job_service import ServiceProcess
from fakes.job_trainer import DirectPublisher, JobTrainer

from live_eval.channel import notify, socket_path
from live_eval.config import EngineSettings, HttpSettings, ServiceConfig, StoreSettings
from live_eval.errors import TransportError
from live_eval.evaluation.datasets import EXACT_MATCH, EvalSetConfig
from live_eval.evaluation.job import RunLimits
from live_eval.evaluation.sampling import SamplingParams
from live_eval.results.wandb_sink import WandbConfig
from live_eval.rundir import SERVICE_SOCKET, RunDir
from live_eval.scheduling.config import SchedulerConfig
from live_eval.store import BaseCheckpoint, VersionStore
from live_eval.subscriber.receiver import Receiver
from protocol.messages import JobsAccepted, StoreChanged, SubmitCheckpoint, TrainingEnded

RUN_ID = "job"
MAX_BYTES = 1 << 30
KEEP_NEWEST = 1000
"""All versions stay, so that a checker can look at them."""
SPREAD = "fakes.job_rewards.spread"


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """An eval set to be made; its prompts begin with its name and a colon."""

    name: str
    num_rows: int = 4
    max_new_tokens: int = 6
    reward: str = SPREAD

    def write(self, folder: Path) -> EvalSetConfig:
        """Make the file; how it is evaluated."""
        path = folder / f"{self.name}.jsonl"
        rows = [
            {"id": f"r{n}", "prompt": f"{self.name}:{n} of {self.num_rows}", "label": str(n)}
            for n in range(self.num_rows)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        sampling = SamplingParams(max_new_tokens=self.max_new_tokens, ignore_eos=True)
        return EvalSetConfig(name=self.name, path=path, sampling=sampling, reward=self.reward)


TWO = (Dataset(name="a"), Dataset(name="b", reward=EXACT_MATCH))


@dataclass
class Job:
    """One run directory, with the processes over it. Close it at the end, or use `job_in`."""

    root: Path
    base: Path
    engines: EngineSettings
    datasets: Sequence[Dataset] = TWO
    scheduler: dict[str, Any] = field(default_factory=dict)
    limits: RunLimits = field(default_factory=lambda: RunLimits(chunk_size=2, num_in_flight=1))
    http: HttpSettings | None = None
    max_bytes: int = MAX_BYTES
    """Budget of the store."""
    wait_s: float = 120.0
    """Longest wait for anything."""
    store: VersionStore | None = None
    """Of the receiver in this process, if there is one."""

    def __post_init__(self) -> None:
        self.run_dir = RunDir(self.root)
        self.run_dir.make()
        sets = tuple(dataset.write(self.run_dir.data) for dataset in self.datasets)
        names = tuple(dataset.name for dataset in self.datasets)
        ServiceConfig(
            run_id=RUN_ID,
            run_dir=self.root,
            base=self.base,
            datasets=sets,
            scheduler=SchedulerConfig(**{"datasets": names, "queue_size": 100, **self.scheduler}),
            store=StoreSettings(max_bytes=self.max_bytes, keep_newest=KEEP_NEWEST),
            engines=self.engines,
            limits=self.limits,
            wandb=WandbConfig(dir=self.run_dir.wandb, project="jobs", group=RUN_ID, finish_timeout_s=60.0),
            http=self.http,
            num_graders=1,
        ).save(self.run_dir.config)
        self.socket = socket_path(self.root, SERVICE_SOCKET)
        self.service = ServiceProcess(
            self.run_dir.config, socket=self.socket, log=self.run_dir.logs / "service.log"
        )

    # --- trainer and receiver -------------------------------------------------------------

    def trainer(self, *, life: str = "life-1", seed: int = 0) -> JobTrainer:
        """A trainer, or another life of it, whose receiver is in this process."""
        if self.store is None:
            base = BaseCheckpoint.read(self.base)
            self.store = VersionStore.open(
                self.run_dir.store, base=base, max_bytes=self.max_bytes, keep_newest=KEEP_NEWEST, writer=True
            )
            self.receiver = Receiver(self.store, base, on_change=lambda: notify(self.socket, StoreChanged()))
        return JobTrainer(self.base, lambda _: DirectPublisher(self.receiver, life), seed=seed)

    # --- service --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the service and wait until it serves."""
        self.service.start()
        self.service.wait_state("serving", timeout_s=self.wait_s)

    def restart(self) -> None:
        """After a kill."""
        self.start()

    def submit(self, checkpoint: Path) -> tuple[str, ...]:
        """Let a checkpoint be evaluated; its jobs."""
        answer = self.service.ask(SubmitCheckpoint(path=str(checkpoint)))
        assert isinstance(answer, JobsAccepted)
        return answer.job_ids

    def end_training(self) -> None:
        """Tell the present life that no sync comes any more."""
        self.service.ask(TrainingEnded())

    def finish(self) -> None:
        """As a driver does at the end: tell it until it has ended, and see that it ended well."""
        deadline = time.monotonic() + self.wait_s
        while self.service.returncode is None:
            assert time.monotonic() < deadline, f"the service does not end:\n{self.service.log_tail()}"
            if self.service.state() == "serving":
                try:
                    self.end_training()
                except TransportError:
                    continue
            time.sleep(0.05)
        assert self.service.returncode == 0, self.service.log_tail()

    def close(self) -> None:
        """End what is left."""
        self.service.stop()
        if self.store is not None:
            self.store.close()

    # --- what is on record now ------------------------------------------------------------

    def ask_ledger(self, query: str, *values: object) -> list[sqlite3.Row]:
        """Rows of the ledger; none before there is one."""
        return query_database(self.run_dir.ledger, query, *values)

    def statuses(self) -> dict[str, str]:
        """Job -> status."""
        return {row["job_id"]: row["status"] for row in self.ask_ledger("SELECT job_id, status FROM jobs")}

    def ends(self) -> dict[str, str]:
        """Job -> `status: reason` of those that ended."""
        rows = self.ask_ledger("SELECT job_id, status, reason FROM results ORDER BY rowid")
        return {row["job_id"]: f"{row['status']}: {row['reason']}" for row in rows}

    def num_done(self, job_id: str) -> int:
        """Samples of the job's present run that are done."""
        rows = self.ask_ledger("SELECT num_done FROM jobs WHERE job_id = ?", job_id)
        return rows[0]["num_done"] if rows else 0

    def versions(self) -> set[int]:
        """Sealed versions."""
        query = "SELECT policy_version FROM versions WHERE state = 'sealed'"
        return {row["policy_version"] for row in query_database(self.run_dir.catalogue, query)}

    def versions_with_jobs(self) -> set[int]:
        """Versions that have a job on record."""
        return {row["policy_version"] for row in self.ask_ledger("SELECT policy_version FROM jobs")}

    def versions_with_ends(self) -> set[int]:
        """Versions whose every dataset has a result."""
        rows = self.ask_ledger("SELECT policy_version, count(*) AS n FROM results GROUP BY policy_version")
        return {row["policy_version"] for row in rows if row["n"] == len(self.datasets)}

    def until(self, condition: Callable[[], bool], *, pause_s: float = 0.005) -> None:
        """Wait for something to be so."""
        deadline = time.monotonic() + self.wait_s
        while not condition():
            assert self.service.returncode is None, f"the service ended:\n{self.service.log_tail()}"
            assert time.monotonic() < deadline, f"{self.statuses()}\n{self.service.log_tail()}"
            time.sleep(pause_s)

    def until_ended(self, *job_ids: str) -> None:
        """Wait for these jobs' results."""
        self.until(lambda: set(job_ids) <= self.ends().keys())


@contextmanager
def job_in(root: Path, base: Path, engines: EngineSettings, **settings: Any) -> Iterator[Job]:
    """A job whose processes are gone at the end."""
    job = Job(root, base, engines, **settings)
    try:
        yield job
    finally:
        job.close()


def query_database(path: Path, query: str, *values: object) -> list[sqlite3.Row]:
    """Ask an SQLite file without any code of live-eval; nothing if it has no such table yet."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30.0)) as db:
        db.row_factory = sqlite3.Row
        try:
            return db.execute(query, values).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise
