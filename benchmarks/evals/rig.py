"""One service with its store over a server that outlives it: what a user runs, with a clock beside it.

Times are the wall clock's, as the manifest and the ledger have them; all processes are on one host.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from live_eval.channel import BlockingClient, notify, socket_path
from live_eval.config import EngineSettings, ServiceConfig, StoreSettings
from live_eval.errors import LedgerError, TransportError
from live_eval.evaluation.job import sample_file
from live_eval.publisher.base import bucketize, tensor_meta
from live_eval.results.reader import LedgerReader
from live_eval.rundir import SERVICE_SOCKET, RunDir
from live_eval.scheduling.config import OnUpdate, SchedulerConfig
from live_eval.store import BaseCheckpoint, VersionStore
from live_eval.subscriber.arrival import Arrived, copy_digest
from live_eval.subscriber.receiver import Receiver
from protocol.messages import (
    BucketHeader,
    JobResult,
    Message,
    ServiceStatus,
    SourceDone,
    StatusRequest,
    StoreChanged,
    SyncBegin,
    SyncCommit,
)

if TYPE_CHECKING:
    from benchmarks.evals.model import EvalModel
    from live_eval.evaluation.datasets import EvalSetConfig

BUCKET_BYTES = 64 << 20
WAIT_S = 300.0
SOURCE = "pp_0"
NEVER = 1000
"""For limits that must not come into play."""


class Stuck(Exception):
    """The service did not do within WAIT_S what the measurement waits for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Committed:
    """A version and its moments, in seconds since the epoch."""

    policy_version: int
    commit_at: float
    """The trainer's last message was about to be sent."""
    sealed_at: float


class Rig:
    """A service with one engine, by address; a context manager."""

    def __init__(
        self,
        root: Path,
        base: Path,
        url: str,
        datasets: tuple[EvalSetConfig, ...],
        *,
        on_update: OnUpdate,
    ) -> None:
        self.run_dir = RunDir(root)
        self.run_dir.make()
        checkpoint = BaseCheckpoint.read(base)
        max_bytes = 12 * checkpoint.version_bytes
        config = ServiceConfig(
            run_id=root.name,
            run_dir=root,
            base=base,
            datasets=datasets,
            scheduler=SchedulerConfig(
                datasets=tuple(dataset.name for dataset in datasets),
                on_update=on_update,
                max_consecutive_cancels=NEVER,
            ),
            store=StoreSettings(max_bytes=max_bytes, keep_newest=2),
            engines=EngineSettings(addresses=(url,), device="cpu"),
        )
        config.save(self.run_dir.config)
        self._socket = socket_path(root, SERVICE_SOCKET)
        self._num_sent = 0
        self._stack = ExitStack()
        self.store = self._stack.enter_context(
            VersionStore.open(
                self.run_dir.store, base=checkpoint, max_bytes=max_bytes, keep_newest=2, writer=True
            )
        )
        self._receiver = Receiver(
            self.store, checkpoint, on_change=lambda: notify(self._socket, StoreChanged())
        )
        self._service = self._start()

    def __enter__(self) -> Self:
        self.until(lambda: self._state() == "serving", "the service serves")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._service.terminate()
        try:
            self._service.wait(WAIT_S)
        finally:
            self._service.kill()
            self._stack.close()

    def publish(self, model: EvalModel) -> Committed:
        """Send the model's weights as the next version, as one source."""
        self._num_sent += 1
        sync_id, number = f"sync-{self._num_sent}", self._num_sent
        self._receiver.begin(
            SyncBegin(
                sync_id=sync_id,
                run_id="benchmark",
                incarnation_id="life-1",
                weight_version=number,
                sources=(SOURCE,),
                rollout_id=number - 1,
            )
        )
        count = 0
        for bucket in bucketize(model.tensors(), BUCKET_BYTES):
            metas = tuple(tensor_meta(name, tensor) for name, tensor in bucket)
            header = BucketHeader(
                sync_id=sync_id, source=SOURCE, index=count, weight_version=number, tensors=metas
            )
            arrays = [_bytes(tensor) for _, tensor in bucket]

            def fill(places: list[Any], arrays: list[Any] = arrays) -> list[str]:
                return [
                    copy_digest(Arrived(array), 0, place) for array, place in zip(arrays, places, strict=True)
                ]

            self._receiver.take_bucket(header, fill)
            count += 1
        self._receiver.source_done(SourceDone(sync_id=sync_id, source=SOURCE, num_buckets=count))
        commit_at = time.time()
        outcome = self._receiver.commit(SyncCommit(sync_id=sync_id, weight_version=number))
        if outcome.policy_version is None or outcome.state != "sealed":
            raise Stuck(f"version {number} was not sealed: {outcome.reason} {outcome.detail}")
        sealed_at = self.store.manifest(outcome.policy_version).sealed_at
        return Committed(policy_version=outcome.policy_version, commit_at=commit_at, sealed_at=sealed_at)

    def result(self, job_id: str) -> JobResult:
        """Wait for the job's end."""
        found: list[JobResult] = []

        def ended() -> bool:
            found[:] = [each for each in self._results() if each.job_id == job_id]
            return bool(found)

        self.until(ended, f"{job_id} ends")
        return found[0]

    def samples_of(self, job_id: str) -> Path:
        """The file of a job that succeeded at once."""
        return self.run_dir.samples / sample_file(job_id)

    def running(self) -> tuple[str, ...]:
        """Jobs that run now."""
        answer = self._ask(StatusRequest())
        return answer.running if isinstance(answer, ServiceStatus) else ()

    def until(self, condition: Callable[[], bool], what: str, *, pause_s: float = 0.02) -> None:
        """Wait; Stuck if it does not come about, or the service ended."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            log = self.run_dir.logs / "service.log"
            if self._service.poll() is not None:
                raise Stuck(f"the service ended before {what}: see {log}")
            if time.monotonic() > deadline:
                raise Stuck(f"after {WAIT_S:g} s still not: {what}; see {log}")
            time.sleep(pause_s)

    # --- helpers --------------------------------------------------------------------------

    def _start(self) -> subprocess.Popen[bytes]:
        with (self.run_dir.logs / "service.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "live_eval.service", str(self.run_dir.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _state(self) -> str:
        try:
            answer = self._ask(StatusRequest())
        except TransportError:
            return "starting"
        return answer.state if isinstance(answer, ServiceStatus) else "unknown"

    def _ask(self, message: Message) -> Message:
        with BlockingClient(self._socket) as client:
            return client.request(message, timeout_s=10.0)

    def _results(self) -> list[JobResult]:
        try:
            with LedgerReader.open_readonly(self.run_dir.ledger) as reader:
                return reader.results()
        except LedgerError:
            return []


def _bytes(tensor: Any) -> Any:
    import torch

    return tensor.contiguous().view(-1).view(torch.uint8).numpy()
