"""A life of the trainer: publishes what it is told to, and says how long that held it.

    bench --Sync--> trainer --Held--> bench --Ask--> trainer --Told--> bench

The publisher is the product's; what goes wrong on the wire is done by a link or an engine of
`benchmarks.faults.wires` below it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.faults.model import BUCKETS, TENSORS, Origin, Tensor, content
from benchmarks.faults.traps import BEFORE, TrapFile
from benchmarks.faults.wires import PUBLISHERS, is_idle
from live_eval.publisher.staging import StagingSlot

if TYPE_CHECKING:
    from live_eval.publisher.base import Publisher
    from protocol.messages import SyncOutcome

NUM_COPIES = 20
POLL_S = 0.002


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerSettings:
    """Who a trainer is and how it publishes."""

    transport: str
    life: int
    where: dict[str, Any]
    """What its transport needs to find the receiver."""
    deadline_s: float
    socket: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """The trainer is there; `copy_s` is the slowest of some staging copies."""

    copy_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Sync:
    """Publish these weights."""

    weight_version: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """How a sync was for the training thread."""

    published: bool
    reason: str = ""
    held_s: float
    """By the clock."""
    waited_s: float
    """Of that, how long the machine ran somebody else though the thread could have run."""
    error: str = ""
    """Of an exception that came out of begin, put_bucket or commit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What became of these weight versions? Wait for `timeout_s` at most."""

    weight_versions: tuple[int, ...]
    timeout_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """Weight version -> (state, reason), for those that are known."""

    outcomes: dict[int, tuple[str, str]] = field(default_factory=dict)


class Trainer:
    """One life."""

    def __init__(self, traps: TrapFile, settings: TrainerSettings) -> None:
        torch.set_num_threads(1)
        self._settings = settings
        self._traps = traps
        self._publisher: Publisher = PUBLISHERS[settings.transport](traps, settings)
        self._outcomes: dict[int, tuple[str, str]] = {}

    def serve(self, connection: Connection) -> None:
        """Do what the bench says until it closes the connection."""
        connection.send(Ready(copy_s=max(_copy_s() for _ in range(NUM_COPIES))))
        while True:
            try:
                command = connection.recv()
            except EOFError:
                break
            if isinstance(command, Sync):
                connection.send(self._sync(command.weight_version))
            else:
                connection.send(self._tell(command))
        self._publisher.close(0.5)

    def _sync(self, weight_version: int) -> Held:
        origin = Origin(self._settings.life, weight_version)
        buckets = [[(tensor.name, _tensor(origin, tensor)) for tensor in bucket] for bucket in BUCKETS]
        began, waited = time.perf_counter(), _waited_s()
        published, reason, error = False, "", ""
        try:
            self._publisher.begin(weight_version, rollout_id=weight_version - 1, train_step=weight_version)
            for index, bucket in enumerate(buckets):
                if self._traps.spring("hand_over", BEFORE, index) is None:
                    self._publisher.put_bucket(bucket)
            report = self._publisher.commit()
            published, reason = report.published, report.reason
        except BaseException as raised:  # whatever comes out is what is counted
            error = f"{type(raised).__name__}: {raised}"
        return Held(
            published=published,
            reason=reason,
            held_s=time.perf_counter() - began,
            waited_s=_waited_s() - waited,
            error=error,
        )

    def _tell(self, ask: Ask) -> Told:
        deadline = time.monotonic() + ask.timeout_s
        idle_before = False
        while True:
            # What is told with the next sync only is not waited for; looked at twice, since it is
            # idle a moment before the outcome is there.
            idle = is_idle(self._publisher)
            for outcome in self._publisher.outcomes():
                self._note(outcome)
            known = {
                version: self._outcomes[version]
                for version in ask.weight_versions
                if version in self._outcomes
            }
            missing = len(known) < len(ask.weight_versions)
            if not missing or time.monotonic() > deadline or (idle and idle_before):
                return Told(outcomes=known)
            idle_before = idle
            time.sleep(POLL_S)

    def _note(self, outcome: SyncOutcome) -> None:
        version = int(outcome.sync_id.rpartition("/")[2])
        self._outcomes[version] = (outcome.state, outcome.reason)


def _tensor(origin: Origin, tensor: Tensor) -> torch.Tensor:
    data = torch.frombuffer(bytearray(content(origin, tensor)), dtype=torch.uint8)
    return data.view(getattr(torch, tensor.dtype)).view(tensor.shape)


def _copy_s() -> float:
    """One staging copy of the model."""
    slot = StagingSlot(2 * sum(tensor.num_bytes for tensor in TENSORS))
    named = [(tensor.name, _tensor(Origin(0, 0), tensor)) for tensor in TENSORS]
    began = time.perf_counter()
    slot.stage(named)
    return time.perf_counter() - began


def _waited_s() -> float:
    """How long this thread has been ready to run while the machine ran others."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
