"""Messages and payloads to a RayReceiver actor, as answers with deadlines.

The only file of the publisher that speaks to Ray. Invariant: whatever Ray raises comes out as a
LinkError that says what becomes of the sync, and no call here waits without a deadline. A receiver
that can read this process's memory does that, at no cost to this process; else the bytes go through
the object store. A `put` that a full object store holds up goes on in a thread of its own; what comes
of it is handed to nobody.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from live_eval.process_memory import allow_reader, number_space
from live_eval.publisher.own_memory import InPlace, Mark
from live_eval.publisher.sender import LinkError
from live_eval.reasons import DiscardReason
from protocol.codec import decode, encode
from protocol.errors import ProtocolError
from protocol.messages import MemoryReach, ReceiveBucket, SyncBegin

if TYPE_CHECKING:
    import numpy as np
    from ray import ObjectRef

    from protocol.messages import Message

logger = logging.getLogger(__name__)

PUT_TIMEOUT_S = 60.0
"""Longest wait for the object store to take one payload."""
PROBE_TIMEOUT_S = 5.0
"""Longest wait for a receiver to say whether it can read this process's memory."""
FIND_EVERY_S = 1.0
"""How often a receiver that is dead for good is looked for."""


class RayLink:
    """The way to one receiver actor (see live_eval.subscriber.ray_receiver).

    Ray restarts an actor on its node. `find` finds the one that was started in its place when the node has
    gone, for example by its name, and raises ValueError while there is none. Without `in_place` all goes
    through the object store.
    """

    def __init__(
        self,
        actor: Any,
        *,
        put_timeout_s: float = PUT_TIMEOUT_S,
        find: Callable[[], Any] | None = None,
        in_place: bool = True,
    ) -> None:
        import ray
        import ray.exceptions

        self._ray = ray
        self._errors = ray.exceptions
        self._actor = actor
        self._put_timeout_s = put_timeout_s
        self._putting: threading.Thread | None = None
        self._find = find
        self._is_lost = False
        self._sought_at = 0.0
        self._mark = Mark() if in_place else None
        self._reads: bool | None = None
        """Whether the receiver can read the memory here; None until it was asked in this sync."""
        self._told: bool | None = None
        """What the log says of it."""

    def put(self, payload: np.ndarray) -> ObjectRef | InPlace:
        """Leave the bytes where they are if the receiver reads them there; else `put_in_store`."""
        if self._mark is not None and self._reads is None:
            self._reads = self._is_read_by_receiver(self._mark, payload)
            self._tell(self._reads)
        return InPlace(payload) if self._reads else self.put_in_store(payload)

    def put_in_store(self, payload: np.ndarray) -> ObjectRef:
        """Copy the bytes into the object store."""
        self._check_connected()
        if self._putting is not None and self._putting.is_alive():
            raise LinkError(
                DiscardReason.PUBLISHER_DEADLINE, "the object store still holds an earlier put up"
            )
        refs: list[ObjectRef] = []
        errors: list[Exception] = []

        def work() -> None:
            try:
                refs.append(self._ray.put(payload))
            except self._errors.RayError as error:
                errors.append(error)

        self._putting = threading.Thread(target=work, name="live-eval-put", daemon=True)
        self._putting.start()
        self._putting.join(self._put_timeout_s)
        if refs:
            return refs.pop()
        if errors:
            raise LinkError(
                DiscardReason.PUBLISHER_ABORTED,
                f"the object store does not take {payload.nbytes} bytes: {errors[0]}",
            ) from errors[0]
        detail = f"the object store took no {payload.nbytes} bytes within {self._put_timeout_s:g} s"
        raise LinkError(DiscardReason.PUBLISHER_DEADLINE, detail)

    def start(self, message: Message, payload: Any = None) -> ObjectRef:
        """Call the actor. The payload is in a list: for a bare ref Ray would wait without a deadline."""
        data = encode(message)
        self._check_connected()
        if isinstance(message, SyncBegin):
            self._reads = None  # the receiver may be another process by now
        if isinstance(payload, InPlace):
            payload = encode(payload.range)
        try:
            self._look_for_another()
            if payload is None:
                if isinstance(message, ReceiveBucket):
                    return self._actor.receive.remote(data)
                return self._actor.request.remote(data)
            return self._actor.bucket.remote(data, [payload])
        except self._errors.RayError as error:
            raise self._gone(error) from error

    def wait(self, pending: Any, timeout_s: float) -> Message:
        """The actor's answer."""
        self._check_connected()
        try:
            return decode(self._ray.get(pending, timeout=timeout_s))
        except self._errors.GetTimeoutError as error:
            raise LinkError(
                DiscardReason.PUBLISHER_DEADLINE, f"the receiver did not answer within {timeout_s:.1f} s"
            ) from error
        except self._errors.RayError as error:
            raise self._gone(error) from error
        except ProtocolError as error:
            raise LinkError(
                DiscardReason.PUBLISHER_ABORTED, f"the receiver's answer is no message: {error}"
            ) from error

    def settled(self, pending: Any, timeout_s: float) -> bool:
        """Whether the answer, or an error in its place, is there."""
        self._check_connected()
        ready, _ = self._ray.wait([pending], timeout=timeout_s, fetch_local=False)
        return bool(ready)

    def _is_read_by_receiver(self, mark: Mark, payload: np.ndarray) -> bool:
        probe = mark.probe(payload)
        for _ in range(2):
            try:
                answer = self.wait(self.start(probe), PROBE_TIMEOUT_S)
            except LinkError:  # what is sent next finds out what there is to know
                return False
            if not isinstance(answer, MemoryReach):
                return False
            if answer.reads:
                return True
            # Elsewhere its number is some other process's.
            is_here = answer.forbidden_in and answer.forbidden_in == number_space()
            if not is_here or not allow_reader(answer.pid):
                return False
        return False

    def _tell(self, reads: bool) -> None:
        if reads is not self._told:
            self._told = reads
            way = "are read in place by the receiver" if reads else "go through Ray's object store"
            logger.info("weights %s", way)

    def _check_connected(self) -> None:
        # Without this a call after ray.shutdown() would start a Ray of its own.
        if not self._ray.is_initialized():
            raise LinkError(DiscardReason.PUBLISHER_ABORTED, "Ray was shut down")

    def _look_for_another(self) -> None:
        now = time.monotonic()
        if not self._is_lost or self._find is None or now - self._sought_at < FIND_EVERY_S:
            return
        self._sought_at = now
        try:
            self._actor = self._find()
        except ValueError:  # Ray's word for a name that nobody has
            return
        self._is_lost = False

    def _gone(self, error: Exception) -> LinkError:
        for_good = (self._errors.ActorDiedError, self._errors.ActorUnschedulableError)
        self._is_lost = self._is_lost or isinstance(error, for_good)
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        return LinkError(DiscardReason.RECEIVER_RESTARTED, f"the receiver is gone: {first_line}")
