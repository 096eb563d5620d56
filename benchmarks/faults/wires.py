"""The trainer's publisher of each transport, with everything that can go wrong on the way.

A transport takes part in the bench by an entry in PUBLISHERS here and one in
`benchmarks.faults.sites.SITES`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from benchmarks.faults.damage import damaged_bytes, lying
from benchmarks.faults.mail_wire import disk_publisher
from benchmarks.faults.model import BUCKETS, Origin, incarnation_id
from benchmarks.faults.traps import AFTER, BEFORE, Trap, TrapFile
from live_eval.errors import TransportError
from live_eval.publisher.collective import CollectiveConfig, CollectivePublisher
from live_eval.publisher.engines import FacadeEngine
from live_eval.publisher.mail import MailSender
from live_eval.publisher.own_memory import InPlace
from live_eval.publisher.ray_link import RayLink
from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher
from protocol.messages import (
    BucketHeader,
    MemoryRange,
    Message,
    ReceiveBucket,
    SourceDone,
    SyncBegin,
    SyncCommit,
)

if TYPE_CHECKING:
    import torch

    from benchmarks.faults.trainer import TrainerSettings
    from live_eval.collective import Group
    from live_eval.publisher.base import Publisher

STEPS: dict[type[Message], str] = {SyncBegin: "begin", SourceDone: "source_done", SyncCommit: "commit"}
SLOT_BYTES = 1 << 20


class Reorder:
    """Exchanges the numbers of a bucket and the one behind it."""

    def __init__(self) -> None:
        self._first: int | None = None

    def start(self, index: int) -> None:
        """From this bucket on."""
        self._first = index

    def index(self, index: int) -> int:
        """The number to send."""
        if self._first is None or index not in (self._first, self._first + 1):
            return index
        return 2 * self._first + 1 - index


class FaultyRayLink(RayLink):
    """The way to the actor, with faults; in every second life of the trainer through the object store."""

    def __init__(self, actor: Any, traps: TrapFile, life: int) -> None:
        super().__init__(actor, in_place=life % 2 == 0)
        self._traps = traps
        self._life = life
        self._version = 0
        self._num_put = 0
        self._reorder = Reorder()
        self._drop = False

    def put(self, payload: np.ndarray) -> Any:
        index, self._num_put = self._num_put, self._num_put + 1
        trap = self._traps.spring("payload", BEFORE, index)
        if trap is None:
            return super().put(payload)
        if trap.action == "late":
            return _late(trap.seconds, payload.copy())
        sent = super().put(damaged_bytes(trap, payload, BUCKETS[index], Origin(self._life, self._version)))
        if trap.action == "lost":
            return _lost(sent)
        return sent

    def start(self, message: Message, payload: Any = None) -> Any:
        step, index = STEPS.get(type(message), ""), 0
        if isinstance(message, SyncBegin):
            self._version, self._num_put, self._reorder = message.weight_version, 0, Reorder()
        if isinstance(message, BucketHeader):
            step, index = "bucket", message.index
        trap = self._traps.spring(step, BEFORE, index)
        message, twice = _altered(message, trap, self._reorder)
        if trap is not None and trap.action == "close":
            close_connections(self._traps)
        pending = super().start(message, payload)
        if twice:
            pending = super().start(message, payload)
        self._traps.spring(step, AFTER, index)
        return pending

    def wait(self, pending: Any, timeout_s: float) -> Message:
        answer = super().wait(pending, timeout_s)
        if getattr(answer, "state", ""):
            self._traps.spring("answer", BEFORE)
        return answer


class Gone(InPlace):
    """Memory that is no more when the receiver wants it."""

    @property
    def range(self) -> MemoryRange:
        return msgspec.structs.replace(super().range, address=1)


def _lost(sent: Any) -> Any:
    """Such a payload, of which nothing is left."""
    if isinstance(sent, InPlace):
        return Gone(sent.payload)
    from ray._private import internal_api

    getattr(internal_api, "free")([sent], local_only=False)  # noqa: B009 - not in its stub
    return sent


def _late(seconds: float, payload: np.ndarray) -> Any:
    """A ref whose object is there after a while."""
    import ray

    @ray.remote(num_cpus=0)
    def come(data: np.ndarray) -> np.ndarray:
        time.sleep(seconds)
        return data

    return come.remote(payload)


def close_connections(traps: TrapFile) -> None:
    """Shut every connection down that this process has with the receiver's."""
    from benchmarks.faults.sockets import shut_connections_to

    shut_connections_to(int(traps.path.with_name("receiver.pid").read_text()))


class FaultyFacadeEngine(FacadeEngine):
    """The receiver process as the publisher sees it, with faults."""

    def __init__(self, settings: TrainerSettings, traps: TrapFile) -> None:
        assert settings.socket is not None
        super().__init__(settings.socket)
        self.traps = traps
        self.life = settings.life
        self.version = 0
        self.bucket = 0
        self.twice = False
        self.payload: Trap | None = None
        self._reorder = Reorder()

    def receive_bucket(self, header: BucketHeader, group_name: str, timeout_s: float) -> None:
        index = header.index
        trap = self.traps.spring("bucket", BEFORE, index)
        if trap is not None and trap.action == "close":
            self._client.close()
        altered, twice = _altered(header, trap, self._reorder)
        self.twice = twice
        self._ask(ReceiveBucket(header=altered, group_name=group_name), timeout_s)
        if twice:
            self._ask(ReceiveBucket(header=altered, group_name=group_name), timeout_s)
        self.traps.spring("bucket", AFTER, index)

    def begin(self, begin: SyncBegin, timeout_s: float) -> None:
        self.version, self.bucket, self._reorder = begin.weight_version, 0, Reorder()
        self._step("begin", begin, super().begin, timeout_s)

    def _step(self, step: str, message: Any, send: Callable[[Any, float], None], timeout_s: float) -> None:
        trap = self.traps.spring(step, BEFORE)
        if trap is not None and trap.action == "close":
            self._client.close()
        send(_altered(message, trap, self._reorder)[0], timeout_s)
        self.traps.spring(step, AFTER)

    def finish(self, done: SourceDone, commit: SyncCommit, timeout_s: float) -> Any:
        self._step("source_done", done, self._ask, timeout_s)
        self._step("commit", commit, self._ask, timeout_s)
        self.traps.spring("answer", BEFORE)
        if self.outcome is None:
            raise TransportError(f"{self.name} answered a commit without an outcome")
        return self.outcome


def damage_broadcasts(engine: FaultyFacadeEngine) -> None:
    """Have this process's broadcasts send what a trap says."""
    import torch

    from live_eval.collective import Group

    broadcast = Group.broadcast

    def faulty(self: Group, tensors: Sequence[torch.Tensor], *, timeout_s: float) -> None:
        index, engine.bucket = engine.bucket, engine.bucket + 1
        trap = engine.traps.spring("payload", BEFORE, index)
        if trap is not None and trap.action in ("lost", "late"):
            trap = None
        if trap is None:
            broadcast(self, tensors, timeout_s=timeout_s)
            if engine.twice:
                engine.twice = False
                broadcast(self, tensors, timeout_s=timeout_s)
            return
        origin = Origin(engine.life, engine.version)
        pieces = [tensor.contiguous().view(-1).view(torch.uint8).numpy() for tensor in tensors]
        sizes = [len(piece) for piece in pieces]
        whole = damaged_bytes(trap, np.concatenate(pieces), BUCKETS[index], origin, aligned=False)
        sizes[-1] += len(whole) - sum(sizes)
        parts = np.split(whole, np.cumsum(sizes)[:-1])
        broadcast(self, [torch.from_numpy(part.copy()) for part in parts], timeout_s=timeout_s)

    Group.broadcast = faulty  # type: ignore[method-assign]


def _altered(message: Any, trap: Trap | None, reorder: Reorder) -> tuple[Any, bool]:
    """The message as it is sent, and whether it is sent twice."""
    if trap is not None and trap.action == "reorder":
        reorder.start(message.index)
    if trap is not None and trap.action == "lie":
        message = lying(message, trap.variant)
    if isinstance(message, BucketHeader):
        message = msgspec.structs.replace(message, index=reorder.index(message.index))
    return message, trap is not None and trap.action == "repeat"


def ray_publisher(traps: TrapFile, settings: TrainerSettings) -> Publisher:
    """Joins the bench's Ray as a driver of its own and finds the receiver."""
    import ray

    where = settings.where
    ray.init(
        address=where["address"],
        namespace=where["namespace"],
        log_to_driver=False,
        configure_logging=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=where["temp_dir"],
    )
    actor = ray.get_actor(where["name"], namespace=where["namespace"])
    config = RayPublisherConfig(
        run_id="faults",
        slot_bytes=SLOT_BYTES,
        incarnation_id=incarnation_id(settings.life),
        deadline_s=settings.deadline_s,
        answer_timeout_s=where["answer_timeout_s"],
        sync_timeout_s=where["sync_timeout_s"],
    )
    return RayRefPublisher(FaultyRayLink(actor, traps, settings.life), config)


def nccl_publisher(traps: TrapFile, settings: TrainerSettings) -> Publisher:
    """Rank 0 of a gloo group."""
    where = settings.where
    engine = FaultyFacadeEngine(settings, traps)
    damage_broadcasts(engine)
    config = CollectiveConfig(
        run_id="faults",
        incarnation_id=incarnation_id(settings.life),
        group_name="faults",
        probe_timeout_s=where["probe_timeout_s"],
        prepare_timeout_s=where["prepare_timeout_s"],
        group_timeout_s=where["group_timeout_s"],
        seal_wait_s=where["seal_wait_s"],
        commit_timeout_s=where["commit_timeout_s"],
    )
    return CollectivePublisher(config, receiver=engine)


PUBLISHERS: dict[str, Callable[[TrapFile, TrainerSettings], Publisher]] = {
    "disk": disk_publisher,
    "ray": ray_publisher,
    "nccl": nccl_publisher,
}
"""Transport -> how a trainer publishes over it."""


def is_idle(publisher: Publisher) -> bool:
    """Whether no outcome comes before the next sync; over disk: whether all is posted."""
    if isinstance(publisher, CollectivePublisher):
        return publisher._sealing is None or publisher._sealing.done()
    if isinstance(publisher, RayRefPublisher) and isinstance(publisher._sender, MailSender):
        return not publisher._sender._queue and len(publisher._pool._free) == publisher._config.num_slots
    return False
