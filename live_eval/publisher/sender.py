"""Hands committed syncs to the receiver, in a thread beside the training thread.

    training thread --submit(StagedSync)--> queue --> sender thread --link--> receiver
                    --give_up(...)--------> queue -->

A sync is either taken by the receiver whole, or given up: after a deadline, because the
receiver is gone, or because its payload cannot be handed over. Invariants: every version that
was submitted or given up has one outcome in the end; a given-up one is told to the receiver
when that answers again, so that its record is complete; the slot goes back when its last bucket
is answered, and in any case.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from live_eval.digests import tensor_digest
from live_eval.errors import TransportError
from live_eval.publisher.notes import MAX_UNTOLD, given_up, outcome_of
from live_eval.publisher.sender_thread import SenderThread, StagedSync
from live_eval.reasons import DiscardReason
from protocol.errors import ProtocolError
from protocol.messages import (
    BucketHeader,
    ErrorReply,
    GroupStatusRequest,
    Message,
    SourceDone,
    SyncAbort,
    SyncCommit,
    SyncGivenUp,
    SyncOutcome,
)

if TYPE_CHECKING:
    import numpy as np

    from live_eval.publisher.staging import StagedBucket


logger = logging.getLogger(__name__)

RESTART_POLL_S = 0.1
"""Pause between two looks whether a receiver that died is back."""
RETRY_S = 1.0
"""How often an idle sender tries to tell them."""


class LinkError(TransportError):
    """The link could not do it; `reason` is what becomes of the sync."""

    def __init__(self, reason: DiscardReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Refused(LinkError):
    """The receiver is there and answered with an error."""


class ReceiverLink(Protocol):
    """How messages and payloads reach the receiver. Every method raises LinkError only."""

    def put(self, payload: np.ndarray) -> Any:
        """Make the bytes available to the receiver; they stay as they are until their bucket is answered."""

    def start(self, message: Message, payload: Any = None) -> Any:
        """Send without waiting; returns the pending answer."""

    def wait(self, pending: Any, timeout_s: float) -> Message:
        """The answer. LinkError(publisher_deadline) if it is not there in time; it may come later."""
        ...

    def settled(self, pending: Any, timeout_s: float) -> bool:
        """Whether an answer, or the end of the receiver, has come within `timeout_s`."""
        ...


class SyncSender(SenderThread):
    """Sends each sync whole over a link, and tells the receiver of those that were given up."""

    def __init__(self, link: ReceiverLink, *, answer_timeout_s: float, sync_timeout_s: float) -> None:
        super().__init__("live-eval-sender")
        self._link = link
        self._answer_timeout_s = answer_timeout_s
        self._sync_timeout_s = sync_timeout_s
        self._untold: deque[SyncGivenUp] = deque()
        self._unanswered: list[Any] = []
        self._receiver_is_gone = False
        """A sync has waited for it in vain, and it has not answered since."""
        self._start()

    def _run(self) -> None:
        while True:
            item, last = self._next(RETRY_S if self._untold else None)
            try:
                self._work(item)
            except Exception as error:  # the thread's supervisor: one sync may fail, the next is sent
                logger.exception("the sender failed")
                if isinstance(item, StagedSync):
                    self._give_up(item, DiscardReason.PUBLISHER_ABORTED, f"{type(error).__name__}: {error}")
            if last and (not self._untold or time.monotonic() > self._ends_at):
                while self._untold:
                    self._report(outcome_of(self._untold.popleft()))
                return
            if last:
                time.sleep(RESTART_POLL_S)

    def _work(self, item: StagedSync | SyncGivenUp | None) -> None:
        if isinstance(item, StagedSync):
            self._send(item)
            return
        if item is not None:
            self._remember(item)
        with suppress(LinkError):
            self._settle(0.0)
            self._tell_untold()

    def _send(self, sync: StagedSync) -> None:
        try:
            self._report(self._exchange(sync))
        except LinkError as error:
            self._give_up(sync, error.reason, error.detail)
        except ProtocolError as error:
            self._give_up(sync, DiscardReason.PUBLISHER_ABORTED, f"a message cannot be sent: {error}")
        finally:
            sync.release()

    def _exchange(self, sync: StagedSync) -> SyncOutcome:
        """The whole sync, up to its outcome; ends early when the receiver says that it has ended."""
        deadline = time.monotonic() + self._sync_timeout_s
        self._settle(self._answer_timeout_s)
        self._wait_for_receiver()
        self._tell_untold()
        begin = sync.begin
        if outcome := self._ask(begin, deadline):
            return outcome
        digests: dict[str, str] = {}
        pending: Any = None
        for index, bucket in enumerate(sync.buckets):
            payload = self._link.put(bucket.payload)
            # One bucket is under way at a time: that keeps the order, and what is in the object
            # store stays below two buckets.
            if pending is not None and (outcome := self._answer(pending, deadline)):
                return outcome
            # Not beside the receiver's work: where cores are few, one of the two would take its turns on the
            # training thread's.
            names = (tensor.name for tensor in bucket.tensors)
            digests.update(zip(names, map(tensor_digest, bucket.views()), strict=True))
            under_way = payload  # held until it is answered, while `payload` is the next one already
            pending = self._link.start(_header(sync, index, bucket), under_way)
        if pending is not None and (outcome := self._answer(pending, deadline)):
            return outcome
        sync.release()
        done = SourceDone(
            sync_id=begin.sync_id, source=sync.source, num_buckets=len(sync.buckets), digests=digests
        )
        if outcome := self._ask(done, deadline):
            return outcome
        outcome = self._ask(SyncCommit(sync_id=begin.sync_id, weight_version=begin.weight_version), deadline)
        if outcome is None:
            raise LinkError(
                DiscardReason.PUBLISHER_ABORTED, "the receiver answered a commit without an outcome"
            )
        return outcome

    def _wait_for_receiver(self) -> None:
        """A receiver that died is being restarted: the sync can wait for it, its bytes are in the slot.

        Once in vain; later syncs ask once, so that the next one finds the slot free.
        """
        deadline = time.monotonic() + self._answer_timeout_s
        patience_ends_at = 0.0 if self._receiver_is_gone else min(deadline, self._ends_at)
        while True:
            try:
                self._ask(GroupStatusRequest(), deadline)
                self._receiver_is_gone = False
                return
            except LinkError as error:
                gone = error.reason is DiscardReason.RECEIVER_RESTARTED
                if not gone or time.monotonic() > patience_ends_at:
                    self._receiver_is_gone = gone
                    raise
            time.sleep(RESTART_POLL_S)

    def _ask(self, message: Message, deadline: float) -> SyncOutcome | None:
        return self._answer(self._link.start(message), deadline, patient=isinstance(message, SyncCommit))

    def _answer(self, pending: Any, deadline: float, *, patient: bool = False) -> SyncOutcome | None:
        """The outcome, if the answer says that the sync has ended; a commit may wait for other sources."""
        left = max(deadline - time.monotonic(), 0.0)
        try:
            answer = self._link.wait(pending, left if patient else min(left, self._answer_timeout_s))
        except LinkError:
            self._unanswered.append(pending)
            raise
        if isinstance(answer, ErrorReply):
            raise Refused(DiscardReason.PUBLISHER_ABORTED, f"the receiver refused: {answer.message}")
        return answer if isinstance(answer, SyncOutcome) else None

    def _give_up(self, sync: StagedSync, reason: DiscardReason, detail: str) -> None:
        begin = sync.begin
        logger.warning("weight version %d is given up: %s (%s)", begin.weight_version, reason, detail)
        try:
            abort = SyncAbort(sync_id=begin.sync_id, reason=reason, detail=detail)
            self._unanswered.append(self._link.start(abort))
        except (LinkError, ProtocolError) as error:
            logger.debug("the abort could not be sent: %s", error)
        self._remember(given_up(begin, reason, detail))

    def _remember(self, note: SyncGivenUp) -> None:
        self._untold.append(note)
        while len(self._untold) > MAX_UNTOLD:
            self._report(outcome_of(self._untold.popleft()))

    def _settle(self, timeout_s: float) -> None:
        """Wait for answers that are owed; LinkError if one is not there within `timeout_s`.

        Asking a frozen receiver again and again would only pile up what it has to do later.
        """
        deadline = time.monotonic() + timeout_s
        while self._unanswered:
            if not self._link.settled(self._unanswered[0], max(deadline - time.monotonic(), 0.0)):
                raise LinkError(
                    DiscardReason.PUBLISHER_DEADLINE, "the receiver still owes an answer from an earlier sync"
                )
            self._unanswered.pop(0)

    def _tell_untold(self) -> None:
        """Tell the receiver what was given up; LinkError if it does not take it now."""
        while self._untold:
            note = self._untold[0]
            outcome: SyncOutcome | None = None
            try:
                outcome = self._ask(note, time.monotonic() + self._answer_timeout_s)
            except (Refused, ProtocolError) as error:  # telling it again would change nothing
                logger.warning("weight version %d cannot be told: %s", note.weight_version, error)
            self._untold.popleft()
            self._report(outcome or outcome_of(note))


def _header(sync: StagedSync, index: int, bucket: StagedBucket) -> BucketHeader:
    return BucketHeader(
        sync_id=sync.begin.sync_id,
        source=sync.source,
        index=index,
        weight_version=sync.begin.weight_version,
        tensors=bucket.tensors,
    )
