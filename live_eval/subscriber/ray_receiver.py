"""The receiver as a Ray actor: messages in, answers out, payloads as object refs or where they lie.

Ray restarts the actor when it dies; its new life ends what the old one left unfinished.
Invariants: no wait for a payload is without a deadline; a payload is copied into the store and
let go before its bucket is answered, so that nothing here keeps the trainer's object store
full; whatever goes wrong is an answer, never an exception of the actor.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_eval.channel import notify
from live_eval.errors import LiveEvalError, TransportError
from live_eval.mailbox import Mailbox
from live_eval.processes import stand_back
from live_eval.reasons import DiscardReason
from live_eval.store import BaseCheckpoint, VersionStore
from live_eval.subscriber.arrival import Arrived, unpack
from live_eval.subscriber.delta import DeltaTip
from live_eval.subscriber.expected import SyncFault
from live_eval.subscriber.foreign_memory import ForeignPayload, reach
from live_eval.subscriber.mail_reader import MailReader
from live_eval.subscriber.receiver import TICK_S, Receiver
from protocol.codec import decode, encode
from protocol.errors import MalformedMessage, ProtocolError
from protocol.messages import (
    BucketHeader,
    ErrorReply,
    MemoryProbe,
    MemoryRange,
    Message,
    StoreChanged,
)

if TYPE_CHECKING:
    from ray.actor import ActorProxy

    from live_eval.subscriber.arrival import Source

logger = logging.getLogger(__name__)

MAX_CALLS = 32
"""Calls that the actor works on at once; a commit holds one while it waits for other sources."""
IN_ORDER = "in_order"
CALL_GROUPS = {IN_ORDER: 1}
"""Calls of this group are worked on one by one, beside the others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RayReceiverConfig:
    """Where and what to receive."""

    store: Path
    base: Path
    """Checkpoint of the start, a directory in Hugging Face format."""
    max_bytes: int
    """Byte budget of the store."""
    keep_newest: int = 3
    allowed_absent: tuple[str, ...] = ()
    """Patterns of tensors that a sync need not carry."""
    service_socket: Path | None = None
    """Told to look after each outcome, if anybody listens."""
    deadline_s: float = 60.0
    """Longest silence within a sync."""
    payload_timeout_s: float = 30.0
    """Longest wait for one payload; less than `deadline_s`."""
    on_gpu: bool = False
    """Whether tensors arrive on a GPU: a RayFacade in an NCCL group."""
    mail_dir: Path | None = None
    """A mailbox through which versions come."""
    delta_dir: Path | None = None
    """Where the deltas that come by mail are applied; room for one model."""


class RayReceiver:
    """The actor's class; `start_ray_receiver` makes it one."""

    def __init__(self, config: RayReceiverConfig) -> None:
        import ray
        import ray.exceptions

        stand_back(whole_process=True)
        self._ray = ray
        self._errors = ray.exceptions
        self._config = config
        base = BaseCheckpoint.read(config.base, allowed_absent=config.allowed_absent)
        store = VersionStore.open(
            config.store, base=base, max_bytes=config.max_bytes, keep_newest=config.keep_newest, writer=True
        )
        self._receiver = Receiver(store, base, deadline_s=config.deadline_s, on_change=self._tell_service)
        self._tell_service()  # an earlier life may have left a sync that has just been discarded
        threading.Thread(target=self._tick, name="receiver-tick", daemon=True).start()
        self._mailbox = None if config.mail_dir is None else Mailbox(config.mail_dir)
        if self._mailbox is not None:
            tip = None if config.delta_dir is None else DeltaTip(config.delta_dir, base)
            reader = MailReader(self._mailbox, self._receiver, tip=tip)
            threading.Thread(target=self._read_mail, args=(reader,), name="mail", daemon=True).start()

    def read_all_mail(self, timeout_s: float) -> bool:
        """Wait until nothing is in the mailbox; False if that takes longer."""
        deadline = time.monotonic() + timeout_s
        while self._mailbox is not None and self._mailbox.entries():
            if time.monotonic() > deadline:
                return False
            time.sleep(TICK_S)
        return True

    def ping(self) -> None:
        """Return when the actor has started."""

    def request(self, data: bytes) -> bytes:
        """Answer a message that carries no payload."""
        return self._answer(data, self._request)

    def bucket(self, data: bytes, payload: list[Any]) -> bytes:
        """Take a bucket: its header, and in a list the ref of its payload (see protocol.payload).

        In the ref's place may be an encoded MemoryRange: the payload is read where it lies.
        """
        return self._answer(data, lambda header: self._bucket(header, payload))

    def _request(self, message: Message) -> Message:
        if isinstance(message, MemoryProbe):
            return reach(message)
        return self._receiver.handle(message)

    def _bucket(self, header: Message, payload: list[Any]) -> Message:
        if not isinstance(header, BucketHeader) or len(payload) != 1:
            raise MalformedMessage("a bucket is one header and one payload")
        receiver = self._receiver
        where = decode(payload[0]) if isinstance(payload[0], bytes) else None
        if where is not None and not isinstance(where, MemoryRange):
            raise MalformedMessage(f"{type(where).__name__} is no place of a payload")

        def source() -> Source:
            return ForeignPayload(where) if where else Arrived(self._get(payload[0]))

        try:
            return receiver.take_bucket(header, lambda places: unpack(source(), header.tensors, places))
        except SyncFault as fault:
            return receiver.fail(header.sync_id, fault.reason, fault.detail)

    def _get(self, ref: Any) -> Any:
        try:
            return self._ray.get(ref, timeout=self._config.payload_timeout_s)
        except self._errors.GetTimeoutError as error:
            detail = f"the payload was not there within {self._config.payload_timeout_s:g} s"
            raise SyncFault(DiscardReason.PAYLOAD_LOST, detail) from error
        except self._errors.RayError as error:
            first_line = (str(error) or type(error).__name__).splitlines()[0]
            raise SyncFault(DiscardReason.PAYLOAD_LOST, f"{type(error).__name__}: {first_line}") from error

    def _answer(self, data: bytes, answer: Any) -> bytes:
        try:
            return encode(answer(decode(data)))
        except (LiveEvalError, ProtocolError) as error:
            return encode(ErrorReply(code=error.code, message=str(error)[:1000]))
        except Exception as error:  # a fault in one request must not look like the end of the actor
            logger.exception("a request failed")
            return encode(ErrorReply(code="internal", message=f"{type(error).__name__}: {error}"[:1000]))

    def _tell_service(self) -> None:
        if self._config.service_socket is not None:
            notify(self._config.service_socket, StoreChanged())

    def _read_mail(self, reader: MailReader) -> None:
        pause = threading.Event()
        while not pause.wait(TICK_S):
            try:
                reader.run_once()
            except Exception:  # the thread's supervisor: what comes later is read all the same
                logger.exception("the mailbox could not be read")

    def _tick(self) -> None:
        pause = threading.Event()
        while not pause.wait(TICK_S):
            try:
                self._receiver.tick()
            except LiveEvalError:
                logger.exception("a deadline could not be carried out")


def start_ray_receiver(
    config: RayReceiverConfig,
    *,
    name: str,
    namespace: str | None = None,
    node_id: str | None = None,
    num_cpus: float = 0.0,
    detached: bool = False,
    start_timeout_s: float = 60.0,
    actor_class: type[RayReceiver] = RayReceiver,
    env: Mapping[str, str] | None = None,
) -> ActorProxy[RayReceiver]:
    """Start the receiver in the Ray that this process is connected to, or find the one of that name.

    Ray restarts it without limit; `node_id` ties it to the node of the store and the engines. When that node
    goes it is dead for good: start another of the same name, and publishers whose link can `find` it go on.
    `detached` lets it outlive the process that started it; `env` is added to its environment.
    TransportError if it does not start within `start_timeout_s` seconds, with the reason.
    """
    import ray
    import ray.exceptions
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    options: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "get_if_exists": True,
        "num_cpus": num_cpus,
        # A call must never be repeated behind the sender's back: a bucket would come twice.
        "max_restarts": -1,
        "max_task_retries": 0,
        "max_concurrency": MAX_CALLS,
    }
    if node_id is not None:
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node_id, soft=False)
    if detached:
        options["lifetime"] = "detached"
    if env:
        options["runtime_env"] = {"env_vars": dict(env)}
    remote: Any = ray.remote  # its stub knows no concurrency groups
    actor: Any = remote(concurrency_groups=CALL_GROUPS)(actor_class).options(**options).remote(config)
    try:
        ray.get(actor.ping.remote(), timeout=start_timeout_s)
    except ray.exceptions.RayError as error:
        ray.kill(actor, no_restart=True)
        raise TransportError(f"the receiver {name!r} does not start: {error}") from error
    return actor
