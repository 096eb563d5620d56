"""The publisher for a group that is not ours: the receiver is one more member, somebody else broadcasts.

    begin        the receiver opens the sync           announce    the receiver posts its receives
    put_bucket   digests, where tensors are on a CPU   commit      the rest, in a thread beside

Costs the training thread a question and an answer a sync. Invariants: nothing here raises in the
training thread; an announcement is sent for every bucket that is broadcast, also when no sync is open,
because the group needs its member; every version that was begun has one outcome in the end.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from live_eval.digests import tensor_digest
from live_eval.publisher.base import NamedTensor, SyncReport
from live_eval.publisher.notes import given_up
from live_eval.publisher.opening import opening
from live_eval.publisher.sender import LinkError, ReceiverLink, SyncSender
from live_eval.publisher.sender_thread import StagedSync
from live_eval.reasons import DiscardReason
from protocol.errors import ProtocolError
from protocol.messages import (
    BucketHeader,
    ErrorReply,
    ReceiveBucket,
    SourceDone,
    SyncBegin,
    SyncCommit,
    SyncOutcome,
    TensorMeta,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberConfig:
    """How a source publishes through somebody else's broadcast."""

    run_id: str
    source: str = "pp_0"
    sources: tuple[str, ...] = ()
    """All sources of a sync; empty means this one alone."""
    incarnation_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    deadline_s: float = 5.0
    """Longest wait of the training thread for the sync before to be sealed."""
    probe_timeout_s: float = 3.0
    """Longest wait of the training thread for an answer."""
    answer_timeout_s: float = 30.0
    sync_timeout_s: float = 300.0
    """Longest time for what is left of a sync after its commit, the wait for other sources included."""


@dataclass(kw_only=True, slots=True)
class AnnouncedSync(StagedSync):
    """A sync whose buckets were broadcast."""

    answers: list[Any]
    """Pending ones, of the announced buckets."""
    digests: dict[str, str]
    held_s: float


@dataclass(kw_only=True, slots=True)
class _OpenSync:
    """What the training thread has between begin and commit."""

    begin: SyncBegin
    began: bool = False
    """Whether the receiver knows it."""
    fault: tuple[DiscardReason, str] | None = None
    answers: list[Any] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    held_s: float = 0.0


class MemberSender(SyncSender):
    """Ends syncs whose bytes went through the group."""

    def _exchange(self, sync: StagedSync) -> SyncOutcome:
        assert isinstance(sync, AnnouncedSync)
        deadline = time.monotonic() + self._sync_timeout_s
        for pending in sync.answers:
            if outcome := self._answer(pending, deadline):
                return outcome
        begin = sync.begin
        done = SourceDone(
            sync_id=begin.sync_id,
            source=sync.source,
            num_buckets=len(sync.answers),
            digests=sync.digests,
            held_s=sync.held_s,
        )
        if outcome := self._ask(done, deadline):
            return outcome
        commit = SyncCommit(sync_id=begin.sync_id, weight_version=begin.weight_version)
        outcome = self._ask(commit, deadline)
        if outcome is None:
            raise LinkError(DiscardReason.PUBLISHER_ABORTED, "a commit was answered without an outcome")
        self._tell_untold()
        return outcome


class MemberPublisher:
    """Publishes one source's part of each sync.

    `is_member` says whether the receiver is in the group; `on_silence` is called when it does not answer,
    before anything of the sync was sent, and may take it out.
    """

    def __init__(
        self,
        link: ReceiverLink,
        config: MemberConfig,
        *,
        is_member: Callable[[], bool] = lambda: True,
        on_silence: Callable[[], None] = lambda: None,
    ) -> None:
        self._link = link
        self._config = config
        self._is_member = is_member
        self._on_silence = on_silence
        self._sender = MemberSender(
            link, answer_timeout_s=config.answer_timeout_s, sync_timeout_s=config.sync_timeout_s
        )
        self._open: _OpenSync | None = None
        self._ended = threading.Event()
        self._ended.set()
        self._announced = (0, 0)
        """Weight version and number of the buckets that are being broadcast."""

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
        """Open the sync at the receiver, or give it up; waits for `deadline_s + probe_timeout_s` at most."""
        began = time.perf_counter()
        self.abort(f"weight version {weight_version} began")
        begin = opening(
            self._config,
            weight_version,
            sources=self._config.sources or (self._config.source,),
            rollout_id=rollout_id,
            train_step=train_step,
            num_bytes=num_bytes,
        )
        self._open = sync = _OpenSync(begin=begin)
        if not self._is_member():
            sync.fault = (DiscardReason.RECEIVER_RESTARTED, "the receiver is not in the trainer's group")
        elif not self._ended.wait(self._config.deadline_s):
            detail = f"the sync before was not sealed (waited {self._config.deadline_s:g} s)"
            sync.fault = (DiscardReason.PUBLISHER_DEADLINE, detail)
        else:
            self._begin(sync)
        sync.held_s = held_s + time.perf_counter() - began

    def put_bucket(self, tensors: Sequence[NamedTensor]) -> None:
        """Hash what is about to be broadcast, if it is in host memory; a GPU's tensors are not copied."""
        sync = self._open
        if sync is None or not sync.began or any(tensor.device.type != "cpu" for _, tensor in tensors):
            return
        began = time.perf_counter()
        for name, tensor in tensors:
            sync.digests[name] = tensor_digest(_bytes_of(tensor))
        sync.held_s += time.perf_counter() - began

    def announce(self, tensors: tuple[TensorMeta, ...], *, weight_version: int, group_name: str) -> None:
        """These tensors are broadcast in the group next, in this order. Never waits."""
        sync = self._open if self._open is not None and self._open.began else None
        last, index = self._announced
        index = index if last == weight_version else 0
        self._announced = (weight_version, index + 1)
        header = BucketHeader(
            sync_id=sync.begin.sync_id if sync is not None else f"unwanted/{weight_version}",
            source=self._config.source,
            index=index,
            weight_version=weight_version,
            tensors=tensors,
        )
        try:
            pending = self._link.start(ReceiveBucket(header=header, group_name=group_name))
        except (LinkError, ProtocolError) as error:
            logger.warning("bucket %d could not be announced: %s", index, error)
            return
        if sync is not None:
            sync.answers.append(pending)

    def commit(self) -> SyncReport:
        """The update is over: the rest happens beside the training thread."""
        sync, self._open = self._open, None
        if sync is None:
            logger.error("commit without begin")
            return SyncReport(weight_version=0, published=False, reason=DiscardReason.EMPTY, held_s=0.0)
        if sync.fault is not None:
            self._drop(sync, *sync.fault)
        else:
            self._ended.clear()
            self._sender.submit(
                AnnouncedSync(
                    begin=sync.begin,
                    source=self._config.source,
                    buckets=[],
                    release=self._ended.set,
                    answers=sync.answers,
                    digests=sync.digests,
                    held_s=sync.held_s,
                )
            )
        return SyncReport(
            weight_version=sync.begin.weight_version,
            published=sync.fault is None,
            reason=sync.fault[0] if sync.fault else "",
            held_s=sync.held_s,
        )

    def abort(self, reason: str) -> None:
        """Give the open sync up."""
        sync, self._open = self._open, None
        if sync is not None:
            self._drop(sync, *(sync.fault or (DiscardReason.PUBLISHER_ABORTED, reason)))

    def outcomes(self) -> list[SyncOutcome]:
        """What became of syncs, as far as known and not asked for before."""
        return self._sender.outcomes()

    def close(self, timeout_s: float = 10.0) -> None:
        """Give the open sync up and let the last one be sealed, within `timeout_s` seconds."""
        self.abort("the publisher was closed")
        if not self._sender.close(timeout_s):
            logger.warning("closed with syncs on their way: not sealed within %.1f s", timeout_s)

    # --- helpers --------------------------------------------------------------------------

    def _begin(self, sync: _OpenSync) -> None:
        try:
            pending = self._link.start(sync.begin)
            answer = self._link.wait(pending, self._config.probe_timeout_s)
        except LinkError as error:
            sync.fault = (error.reason, error.detail)
            self._on_silence()
            return
        except ProtocolError as error:
            sync.fault = (DiscardReason.PUBLISHER_ABORTED, f"the begin cannot be sent: {error}")
            return
        if isinstance(answer, ErrorReply):
            sync.fault = (DiscardReason.PUBLISHER_ABORTED, f"the receiver refused: {answer.message}")
        else:
            sync.began = True  # a sync that is discarded already is ended by the answers to its buckets

    def _drop(self, sync: _OpenSync, reason: DiscardReason, detail: str) -> None:
        logger.warning("weight version %d is given up: %s (%s)", sync.begin.weight_version, reason, detail)
        self._sender.submit(given_up(sync.begin, reason, detail, held_s=sync.held_s))


def _bytes_of(tensor: Any) -> Any:
    import torch

    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()
