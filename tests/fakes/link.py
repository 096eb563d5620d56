"""A link to a receiver in this process, which can be frozen, dead or out of room for payloads."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from live_eval.errors import LiveEvalError
from live_eval.publisher.sender import LinkError
from live_eval.reasons import DiscardReason
from live_eval.subscriber.arrival import Arrived, unpack
from live_eval.subscriber.expected import SyncFault
from protocol.codec import decode, encode
from protocol.messages import BucketHeader, ErrorReply, Message

if TYPE_CHECKING:
    import numpy as np

    from live_eval.store.written_shard import FileRange
    from live_eval.subscriber.receiver import Receiver


class Payload:
    """Bytes that the receiver is given."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data


class Pending:
    """An answer that may not be there yet."""

    def __init__(self, message: Message, payload: Payload | None) -> None:
        self.message = message
        self.payload = payload
        self.answer: Message | None = None
        self.there = threading.Event()


class FakeLink:
    """Answers in order from a thread of its own, like an actor."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self.sent: list[str] = []
        self.in_place = False
        """Whether the receiver reads payloads where they lie, and not a copy as in an object store."""
        self.freezes_at: type[Message] | None = None
        """Freeze before the next message of this type is answered."""
        self.dead = False
        self.put_fault: Exception | None = None
        self.lost_payload = False
        self.max_payloads = 0
        self._payloads: weakref.WeakSet[Payload] = weakref.WeakSet()
        self._running = threading.Event()
        self._running.set()

    def freeze(self) -> None:
        """Answer nothing until `thaw`; what is sent meanwhile waits."""
        self._running.clear()

    def thaw(self) -> None:
        """Answer again."""
        self._running.set()

    def put(self, payload: np.ndarray) -> Payload:
        if self.put_fault is not None:
            raise self.put_fault
        held = Payload(payload if self.in_place else payload.copy())
        self._payloads.add(held)
        self.max_payloads = max(self.max_payloads, len(self._payloads))
        return held

    def start(self, message: Message, payload: Any = None) -> Pending:
        encode(message)
        self.sent.append(type(message).__name__)
        if type(message) is self.freezes_at:
            self.freezes_at = None
            self.freeze()
        pending = Pending(message, payload)
        threading.Thread(target=self._work, args=(pending,), daemon=True).start()
        return pending

    def wait(self, pending: Pending, timeout_s: float) -> Message:
        if self.dead:
            raise LinkError(DiscardReason.RECEIVER_RESTARTED, "the receiver is gone")
        if not pending.there.wait(timeout_s):
            raise LinkError(DiscardReason.PUBLISHER_DEADLINE, f"no answer within {timeout_s:.1f} s")
        assert pending.answer is not None
        return pending.answer

    def settled(self, pending: Pending, timeout_s: float) -> bool:
        return self.dead or pending.there.wait(timeout_s)

    def _work(self, pending: Pending) -> None:
        self._running.wait()
        if not self.dead:
            pending.answer = decode(encode(self._reply(pending)))
        pending.payload = None
        pending.there.set()

    def _reply(self, pending: Pending) -> Message:
        message = pending.message
        try:
            if isinstance(message, BucketHeader):
                return self._bucket(message, pending.payload)
            return self._receiver.handle(message)
        except LiveEvalError as error:
            return ErrorReply(code=error.code, message=str(error))

    def _unpack(
        self, header: BucketHeader, payload: Payload | None, places: list[np.ndarray | FileRange]
    ) -> list[str]:
        if self.lost_payload or payload is None:
            raise SyncFault(DiscardReason.PAYLOAD_LOST, "the owner died")
        return unpack(Arrived(payload.data), header.tensors, places)

    def _bucket(self, header: BucketHeader, payload: Payload | None) -> Message:
        try:
            return self._receiver.take_bucket(header, lambda places: self._unpack(header, payload, places))
        except SyncFault as fault:
            return self._receiver.fail(header.sync_id, fault.reason, fault.detail)
