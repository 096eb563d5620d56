"""Takes syncs in: the session judges, the store keeps. The shell that all transports share.

Knows neither Ray nor torch: a transport asks `open_bucket` for memory, fills it, and says so.
Safe for threads; copying and sealing happen outside the lock, so that sources do not wait for
each other. Invariants: at most one sync is open; each sync has one outcome, and the catalogue
has it before anybody is told; whatever is asked of a sync that has ended is answered by its
outcome.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from live_eval.errors import StoreError, StoreFull, TransportError, VersionRefused
from live_eval.reasons import DiscardReason
from live_eval.subscriber.expected import ExpectedTensors, SyncFault
from live_eval.subscriber.outcomes import begin_of, discarded_outcome, recorded_outcome, sealed_outcome
from live_eval.subscriber.session import SyncSession
from protocol.errors import UnknownMessage
from protocol.messages import (
    BucketHeader,
    BucketStored,
    GroupStatus,
    GroupStatusRequest,
    Message,
    Ok,
    SourceDone,
    SyncAbort,
    SyncAccepted,
    SyncBegin,
    SyncCommit,
    SyncGivenUp,
    SyncOutcome,
)

if TYPE_CHECKING:
    import numpy as np

    from live_eval.store import BaseCheckpoint, StagedVersion, VersionStore
    from live_eval.store.written_shard import FileRange

logger = logging.getLogger(__name__)

MAX_REMEMBERED = 64
"""Ended syncs whose outcome is kept for late questions."""
SEAL_WAIT_S = 120.0
"""Longest wait of a question for a seal that is under way."""
TICK_S = 0.5
"""How often a deadline is looked at."""


@dataclass(slots=True, eq=False)
class _Sync:
    """One sync as this process knows it."""

    session: SyncSession
    staged: StagedVersion | None = None
    outcome: SyncOutcome | None = None


class Receiver:
    """Receives into a store that was opened for writing.

    `deadline_s` is the longest silence within a sync; `on_change` is called, without arguments,
    after each outcome.
    """

    def __init__(
        self,
        store: VersionStore,
        base: BaseCheckpoint,
        *,
        deadline_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        self._store = store
        self._expected = ExpectedTensors(
            required=base.expected(),
            optional=base.optional(),
            tied=dict([base.tied_pair]) if base.tied_pair else {},
        )
        self.instance_id = uuid.uuid4().hex
        """Of this life of the process."""
        self._deadline_s = deadline_s
        self._clock = clock
        self._on_change = on_change
        self._changed = threading.Condition(threading.RLock())
        self._syncs: OrderedDict[str, _Sync] = OrderedDict()
        self._open: _Sync | None = None

    def handle(self, message: Message) -> Message:
        """Answer any message that carries no bucket.

        Blocks for a commit until all sources are done. TransportError for a sync that nobody
        began here; UnknownMessage for a message that is not the receiver's.
        """
        match message:
            case SyncBegin():
                return self.begin(message)
            case SourceDone():
                return self.source_done(message)
            case SyncCommit():
                return self.commit(message)
            case SyncAbort():
                return self.abort(message)
            case SyncGivenUp():
                return self.given_up(message)
            case GroupStatusRequest():
                return GroupStatus(instance_id=self.instance_id)
        raise UnknownMessage(f"{type(message).__name__} is no message to a receiver")

    def begin(self, begin: SyncBegin) -> SyncAccepted | SyncOutcome:
        """Open a sync, or join the open one as a further source of it; an older open one is discarded."""
        self._note_held(begin, begin.held_s)
        with self._changed:
            known = self._syncs.get(begin.sync_id)
            if known is None:
                return self._begin(begin)
            if known.outcome is not None:
                return known.outcome
            if (known.session.begin.sources, known.session.begin.weight_version) != (
                begin.sources,
                begin.weight_version,
            ):
                return self._discard(
                    known, DiscardReason.MIXED_VERSIONS, f"{begin.sync_id} began twice, in different ways"
                )
            return _accepted(known)

    def open_bucket(self, header: BucketHeader) -> list[np.ndarray]:
        """Memory for each tensor of the next bucket, in header order: writable uint8 arrays.

        Raises SyncFault, before a byte is received, if the bucket cannot be part of the sync;
        the sync is discarded then.
        """
        with self._changed:
            sync = self._find(header.sync_id)
        with self._judging(sync):
            with self._changed:
                sync.session.on_bucket(header, now=self._clock())
            return _staged(sync).allocate(header)

    def take_bucket(
        self, header: BucketHeader, copy: Callable[[list[np.ndarray | FileRange]], Sequence[str]]
    ) -> BucketStored:
        """`open_bucket`, fill, `bucket_filled` for bytes that are in memory already.

        `copy` puts them into the places it is given, one for each tensor in header order, and returns
        their digests; it may raise SyncFault or StoreError, which ends the sync like any other fault.
        Raises SyncFault if the bucket cannot be part of the sync.
        """
        with self._changed:
            sync = self._find(header.sync_id)
        with self._judging(sync):
            with self._changed:
                sync.session.on_bucket(header, now=self._clock())
            digests = copy(_staged(sync).allocate_ranges(header))
        return self.bucket_filled(header, digests)

    def bucket_filled(self, header: BucketHeader, digests: Sequence[str] | None = None) -> BucketStored:
        """The bucket's bytes are in the memory that `open_bucket` gave.

        `digests` are those of the tensors, in header order, if the caller computed them while
        copying. Raises SyncFault if the bytes cannot be part of the sync.
        """
        sync = self._find(header.sync_id)
        with self._judging(sync):
            # The digests are computed outside the lock, so that other sources go on.
            found = _staged(sync).filled(header, digests)
            with self._changed:
                sync.session.on_bucket_bytes(header.source, header.index, found, now=self._clock())
        return BucketStored(sync_id=header.sync_id, source=header.source, index=header.index)

    def source_done(self, done: SourceDone) -> Ok | SyncOutcome:
        """A source has sent all; the outcome if this ends the sync."""
        with self._changed:
            sync = self._find(done.sync_id)
        self._note_held(sync.session.begin, done.held_s)  # before the verdict: who sees that, sees this
        with self._changed:
            sync.session.on_source_done(done, now=self._clock())
        return self._conclude(sync) or Ok()

    def commit(self, commit: SyncCommit) -> SyncOutcome:
        """The outcome; waits until all sources are done or the sync's deadline ends it."""
        with self._changed:
            sync = self._find(commit.sync_id)
            sync.session.on_commit(commit, now=self._clock())
        self._conclude(sync)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: sync.outcome is not None, timeout=TICK_S)
                if sync.outcome is not None:
                    return sync.outcome
            self.tick()

    def abort(self, abort: SyncAbort) -> SyncOutcome:
        """The publisher gives the sync up."""
        with self._changed:
            sync = self._find(abort.sync_id)
        self._note_held(sync.session.begin, abort.held_s)
        return self.fail(abort.sync_id, _reason(abort.reason), abort.detail)

    def fail(self, sync_id: str, reason: DiscardReason, detail: str) -> SyncOutcome:
        """End the sync for a cause outside of it; the outcome it had already, if it has ended."""
        with self._changed:
            return self._discard(self._find(sync_id), reason, detail)

    def fail_open(self, reason: DiscardReason, detail: str) -> None:
        """End the open sync, if there is one."""
        with self._changed:
            if self._open is not None:
                self._discard(self._open, reason, detail)

    def given_up(self, note: SyncGivenUp) -> SyncOutcome:
        """Record a version that will never come; what is recorded of it already stands."""
        self._note_held(note, note.held_s)
        with self._changed:
            known = self._syncs.get(note.sync_id)
            if known is not None:
                return self._discard(known, _reason(note.reason), note.detail)
            recorded = recorded_outcome(self._store, note)
            if recorded is not None:
                return recorded
            begin = begin_of(note)
            self._store.sync_refused(begin, _reason(note.reason), note.detail)
            return self._end(self._add(begin), _reason(note.reason), note.detail)

    def recorded(self, begin: SyncBegin) -> SyncOutcome | None:
        """What the catalogue has of this sync already, perhaps from an earlier life of this process."""
        with self._changed:
            known = self._syncs.get(begin.sync_id)
            return known.outcome if known is not None else recorded_outcome(self._store, begin)

    def outcome(self, sync_id: str) -> SyncOutcome | None:
        """How the sync ended; None if it is under way."""
        with self._changed:
            return self._find(sync_id).outcome

    def tick(self) -> None:
        """Discard the open sync if it has been silent for too long. To be called about once a second."""
        with self._changed:
            sync = self._open
            if sync is not None:
                sync.session.on_tick(self._clock())
        if sync is not None:
            self._conclude(sync)

    # --- helpers --------------------------------------------------------------------------

    def _note_held(self, sync: SyncBegin | SyncGivenUp, held_s: float | None) -> None:
        if held_s is None:
            return
        try:
            self._store.note_held(sync.incarnation_id, sync.weight_version, held_s)
        except StoreError as error:  # the sync itself may still fit
            logger.warning("how long weight version %d held is not recorded: %s", sync.weight_version, error)

    def _begin(self, begin: SyncBegin) -> SyncAccepted | SyncOutcome:
        if self._open is not None:
            detail = f"weight version {begin.weight_version} began"
            self._discard(self._open, DiscardReason.SUPERSEDED_BY_BEGIN, detail)
        sync = self._add(begin)
        try:
            sync.staged = self._store.begin(begin)
        except StoreError as error:
            return self._end(sync, *_fault(error))
        self._open = sync
        if sync.session.verdict is not None:
            return self._discard(sync, DiscardReason.UNKNOWN_SOURCE, sync.session.verdict.detail)
        return _accepted(sync)

    def _add(self, begin: SyncBegin) -> _Sync:
        session = SyncSession(self._expected, begin=begin, now=self._clock(), deadline_s=self._deadline_s)
        sync = self._syncs[begin.sync_id] = _Sync(session)
        ended = [sync_id for sync_id, known in self._syncs.items() if known.outcome is not None]
        for sync_id in ended[:-MAX_REMEMBERED]:
            del self._syncs[sync_id]
        return sync

    def _find(self, sync_id: str) -> _Sync:
        sync = self._syncs.get(sync_id)
        if sync is None:
            raise TransportError(
                f"sync {sync_id!r} is not known here: it did not begin, or this receiver is new"
            )
        return sync

    @contextmanager
    def _judging(self, sync: _Sync) -> Iterator[None]:
        """Whatever goes wrong inside ends the sync, and comes out as a SyncFault."""
        try:
            yield
        except (SyncFault, StoreError) as error:
            outcome = self._discard(sync, *_fault(error))
            reason = DiscardReason(outcome.reason or DiscardReason.OUT_OF_ORDER)
            raise SyncFault(reason, outcome.detail or str(error)) from error

    def _conclude(self, sync: _Sync) -> SyncOutcome | None:
        """Carry the session's verdict out, if it has one; the outcome."""
        with self._changed:
            verdict, staged = sync.session.verdict, sync.staged
            if sync.outcome is not None or verdict is None or staged is None:
                return sync.outcome
            if verdict.reason is not None:
                return self._discard(sync, verdict.reason, verdict.detail)
            if self._open is not sync:
                return None  # another thread is sealing it
            self._open = None
        try:
            return self._tell(sync, sealed_outcome(sync.session.begin, staged.seal()))
        except StoreError as error:
            return self._end(sync, *_fault(error))
        finally:  # whatever else was raised: those who wait for an outcome get one
            if sync.outcome is None:
                self._end(sync, DiscardReason.STORE_FAILED, "sealing failed; see the receiver's log")

    def _discard(self, sync: _Sync, reason: DiscardReason, detail: str) -> SyncOutcome:
        """End the sync unless it has ended; if it is being sealed, what comes of that."""
        with self._changed:
            if sync.outcome is None:
                verdict = sync.session.on_fault(reason, detail)
                if verdict.reason is None:
                    if not self._changed.wait_for(lambda: sync.outcome is not None, timeout=SEAL_WAIT_S):
                        raise TransportError(f"the sync is being sealed for over {SEAL_WAIT_S:g} s")
                else:
                    reason, detail = verdict.reason, verdict.detail
                    if sync.staged is not None:
                        sync.staged.discard(reason, detail)
                    return self._end(sync, reason, detail)
            assert sync.outcome is not None
            return sync.outcome

    def _end(self, sync: _Sync, reason: DiscardReason, detail: str) -> SyncOutcome:
        number = sync.staged.policy_version if sync.staged else None
        return self._tell(sync, discarded_outcome(sync.session.begin, reason, detail, policy_version=number))

    def _tell(self, sync: _Sync, outcome: SyncOutcome) -> SyncOutcome:
        with self._changed:
            sync.outcome = outcome
            if self._open is sync:
                self._open = None
            self._changed.notify_all()
        logger.info(
            "weight version %d: %s %s %s",
            outcome.weight_version,
            outcome.state,
            outcome.reason,
            outcome.detail,
        )
        self._on_change()
        return outcome


def _accepted(sync: _Sync) -> SyncAccepted:
    return SyncAccepted(sync_id=sync.session.begin.sync_id, policy_version=_staged(sync).policy_version)


def _staged(sync: _Sync) -> StagedVersion:
    if sync.staged is None:
        raise SyncFault(DiscardReason.STORE_FAILED, "the sync has no place in the store")
    return sync.staged


def _fault(error: SyncFault | StoreError) -> tuple[DiscardReason, str]:
    if isinstance(error, SyncFault | VersionRefused):
        return DiscardReason(error.reason), error.detail
    full = isinstance(error, StoreFull)
    return (DiscardReason.STORE_FULL if full else DiscardReason.STORE_FAILED), str(error)


def _reason(word: str) -> DiscardReason:
    try:
        return DiscardReason(word)
    except ValueError:
        return DiscardReason.PUBLISHER_ABORTED
