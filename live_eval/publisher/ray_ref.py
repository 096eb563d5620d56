"""The publisher that copies into host memory; a thread hands that over, through Ray or as files.

Training thread: begin takes a staging slot, put_bucket copies into it, commit passes it on.
Everything that speaks to Ray, or writes files, happens in the sender thread. Invariants: nothing
here raises in the training thread, and a sync holds it for one copy of the weights and at most `deadline_s`;
nothing of a sync reaches the receiver before its commit.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from live_eval.publisher.base import NamedTensor, SyncReport, bucketize
from live_eval.publisher.notes import given_up
from live_eval.publisher.opening import opening
from live_eval.publisher.sender import ReceiverLink, SyncSender
from live_eval.publisher.sender_thread import StagedSync
from live_eval.publisher.staging import StagedBucket, StagingPool, StagingSlot
from live_eval.reasons import DiscardReason

if TYPE_CHECKING:
    from protocol.messages import SyncBegin, SyncGivenUp, SyncOutcome

logger = logging.getLogger(__name__)

STAGING_ERRORS = (RuntimeError, ValueError, TypeError, KeyError, AttributeError, MemoryError)
"""What torch raises for a tensor that cannot be copied; out of GPU memory is a RuntimeError."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RayPublisherConfig:
    """How a source publishes over Ray."""

    run_id: str
    slot_bytes: int
    """Size of a staging slot: live_eval.publisher.staging.staging_bytes of what this source sends."""
    source: str = "pp_0"
    sources: tuple[str, ...] = ()
    """All sources of a sync; empty means this one alone."""
    incarnation_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Life of the trainer; all sources of one trainer must pass the same."""
    num_slots: int = 1
    bucket_bytes: int = 64 << 20
    """A put_bucket is cut into payloads of about this size; two of them are in the object store at most."""
    deadline_s: float = 5.0
    """Longest wait of the training thread for a free slot."""
    answer_timeout_s: float = 30.0
    """Longest wait of the sender for one answer of the receiver."""
    sync_timeout_s: float = 300.0
    """Longest time for handing over one sync, the wait for other sources included."""
    pinned: bool = False
    """Page-lock the staging, for tensors on a GPU."""


class Sender(Protocol):
    """What is beside the training thread."""

    def submit(self, item: StagedSync | SyncGivenUp) -> None:
        """Queue a committed sync, or the note that one was given up. Never waits."""

    def outcomes(self) -> list[SyncOutcome]:
        """What became of syncs, as far as known and not asked for before."""
        ...

    def close(self, timeout_s: float) -> bool:
        """Finish the queue; False if that takes longer than `timeout_s` seconds."""
        ...


def _sender(link: ReceiverLink | None, config: RayPublisherConfig) -> SyncSender:
    assert link is not None
    return SyncSender(link, answer_timeout_s=config.answer_timeout_s, sync_timeout_s=config.sync_timeout_s)


@dataclass(kw_only=True, slots=True)
class _OpenSync:
    """What the training thread has between begin and commit."""

    begin: SyncBegin
    slot: StagingSlot | None
    buckets: list[StagedBucket] = field(default_factory=list)
    fault: tuple[DiscardReason, str] | None = None
    held_s: float = 0.0


class RayRefPublisher:
    """Publishes one source's part of each sync to a RayReceiver actor at `link`, or through `sender`."""

    def __init__(
        self, link: ReceiverLink | None, config: RayPublisherConfig, *, sender: Sender | None = None
    ) -> None:
        self._config = config
        self._sources = config.sources or (config.source,)
        self._pool = StagingPool(config.num_slots, config.slot_bytes, pinned=config.pinned)
        self._sender = sender or _sender(link, config)
        self._open: _OpenSync | None = None
        self._waited_in_vain = False

    # --- the Publisher interface: called by the training thread ---------------------------

    def begin(
        self,
        weight_version: int,
        *,
        rollout_id: int | None = None,
        train_step: int | None = None,
        num_bytes: int = 0,
        held_s: float = 0.0,
    ) -> None:
        """Take a slot, waiting for `deadline_s` at most; without one the version is given up."""
        began = time.perf_counter()
        if self._open is not None:
            self._drop(
                self._open, DiscardReason.SUPERSEDED_BY_BEGIN, f"weight version {weight_version} began"
            )
        begin = opening(
            self._config,
            weight_version,
            sources=self._sources,
            rollout_id=rollout_id,
            train_step=train_step,
            num_bytes=num_bytes,
        )
        self._open = sync = _OpenSync(begin=begin, slot=None)
        if begin.weight_version < 1:
            sync.fault = (DiscardReason.BAD_WEIGHT_VERSION, f"{weight_version!r} is no positive integer")
        else:
            self._take_slot(sync)
        sync.held_s = held_s + time.perf_counter() - began

    def put_bucket(self, tensors: Sequence[NamedTensor]) -> None:
        """Copy the tensors into the slot; returns when they may change."""
        sync = self._open
        if sync is None:
            logger.error("put_bucket without begin: %d tensors are ignored", len(tensors))
            return
        with self._held(sync):
            if sync.slot is None or sync.fault is not None:
                return
            try:
                self._stage(sync, sync.slot, tensors)
            except STAGING_ERRORS as error:
                detail = f"a bucket cannot be staged: {type(error).__name__}: {error}"
                sync.fault = (DiscardReason.PUBLISHER_ABORTED, detail)

    def commit(self) -> SyncReport:
        """Pass the staged sync to the sender. `published` says that it was passed on whole."""
        sync, self._open = self._open, None
        if sync is None:
            logger.error("commit without begin")
            return SyncReport(weight_version=0, published=False, reason=DiscardReason.EMPTY, held_s=0.0)
        if sync.fault is None and not sync.buckets:
            sync.fault = (DiscardReason.EMPTY, "the commit came without a single bucket")
        if sync.fault is not None:
            self._drop(sync, *sync.fault)
        else:
            self._hand_over(sync)
        return SyncReport(
            weight_version=sync.begin.weight_version,
            published=sync.fault is None,
            reason=sync.fault[0] if sync.fault else "",
            held_s=sync.held_s,
        )

    def abort(self, reason: str) -> None:
        """Give the open sync up; nothing of it has reached the receiver."""
        sync, self._open = self._open, None
        if sync is not None:
            self._drop(sync, DiscardReason.PUBLISHER_ABORTED, reason)

    def outcomes(self) -> list[SyncOutcome]:
        """What the receiver made of syncs, as far as known and not asked for before."""
        return self._sender.outcomes()

    def close(self, timeout_s: float = 10.0) -> None:
        """Give the open sync up and let the sender finish, within `timeout_s` seconds."""
        self.abort("the publisher was closed")
        if not self._sender.close(timeout_s):
            logger.warning(
                "closed with syncs on their way: the receiver did not take them in %.1f s", timeout_s
            )

    # --- helpers --------------------------------------------------------------------------

    def _take_slot(self, sync: _OpenSync) -> None:
        # A sender that is stuck costs the deadline once, and not once a sync.
        deadline_s = 0.0 if self._waited_in_vain else self._config.deadline_s
        sync.slot = self._pool.take(deadline_s)
        self._waited_in_vain = sync.slot is None
        if sync.slot is None:
            detail = f"no free staging slot: an earlier sync is still on its way (waited {deadline_s:g} s)"
            sync.fault = (DiscardReason.PUBLISHER_DEADLINE, detail)

    def _stage(self, sync: _OpenSync, slot: StagingSlot, tensors: Sequence[NamedTensor]) -> None:
        for part in bucketize(tensors, self._config.bucket_bytes):
            bucket = slot.stage(part)
            if bucket is None:
                sync.fault = (
                    DiscardReason.PUBLISHER_ABORTED,
                    f"a staging slot of {slot.num_bytes} bytes is too small: {slot.num_free} were left for "
                    f"{len(part)} more tensors; set slot_bytes to the size of what this source sends",
                )
                return
            sync.buckets.append(bucket)

    def _hand_over(self, sync: _OpenSync) -> None:
        num_bytes = sum(tensor.num_bytes for bucket in sync.buckets for tensor in bucket.tensors)
        self._sender.submit(
            StagedSync(
                begin=msgspec.structs.replace(
                    sync.begin, num_bytes=sync.begin.num_bytes or num_bytes, held_s=sync.held_s
                ),
                source=self._config.source,
                buckets=sync.buckets,
                release=self._releaser(sync),
            )
        )

    def _drop(self, sync: _OpenSync, reason: DiscardReason, detail: str) -> None:
        logger.warning("weight version %s is given up: %s (%s)", sync.begin.weight_version, reason, detail)
        self._releaser(sync)()
        self._sender.submit(given_up(sync.begin, reason, detail, held_s=sync.held_s))

    def _releaser(self, sync: _OpenSync) -> Callable[[], None]:
        def release() -> None:
            slot, sync.slot = sync.slot, None
            if slot is not None:
                self._pool.give_back(slot)

        return release

    @contextmanager
    def _held(self, sync: _OpenSync) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            sync.held_s += time.perf_counter() - began
