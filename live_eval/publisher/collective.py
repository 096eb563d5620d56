"""The publisher of transport `nccl`: rank 0 of a torch.distributed group (gloo for CPU tensors).

Broadcasts once to rollout engines and to the receiver, which is one more rank. Costs the
trainer little beyond the broadcast that it makes anyway, and is exempt from the rule that
training never waits: a member that dies while a sync is in flight makes put_bucket raise
TransportError, as a rollout engine that dies does. Invariants: membership is made sure of
before each sync; each wait has a deadline; after a failure the next begin starts afresh; every
version has one outcome in the end, and the receiver is told of those it did not get.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from live_eval.digests import tensor_digest
from live_eval.errors import TransportError
from live_eval.publisher.base import NamedTensor, SyncReport, tensor_meta
from live_eval.publisher.membership import Membership, failures
from live_eval.publisher.notes import MAX_OUTCOMES, given_up, outcome_of
from live_eval.publisher.opening import opening
from live_eval.reasons import DiscardReason
from protocol.messages import (
    BucketHeader,
    SourceDone,
    SyncAbort,
    SyncBegin,
    SyncCommit,
    SyncOutcome,
)

if TYPE_CHECKING:
    from live_eval.collective import Group
    from live_eval.publisher.engines import FacadeEngine, UpdatableEngine

logger = logging.getLogger(__name__)

ANSWER_MARGIN_S = 2.0
"""Waited beyond the group's own deadline, so that the reason arrives and not only silence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveConfig:
    """How a source publishes over torch.distributed."""

    run_id: str
    source: str = "pp_0"
    sources: tuple[str, ...] = ()
    """All sources of a sync; empty means this one alone."""
    incarnation_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Life of the trainer; all sources of one trainer must pass the same."""
    group_name: str = "live-eval-pp_0"
    """Each group that is built gets this and a number."""
    backend: str = "gloo"
    """`nccl` for tensors on GPUs."""
    address: str = "127.0.0.1"
    """This host's address as the engines see it; the rendezvous listens there only."""
    source_digests: bool | None = None
    """Hash what is sent, beside the broadcast. None: if the tensors are in host memory."""
    probe_timeout_s: float = 3.0
    """Longest wait for an engine to say that it lives."""
    prepare_timeout_s: float = 30.0
    """Longest wait for an engine to pause and be idle."""
    group_timeout_s: float = 30.0
    """Longest wait of a member for the others, to join and in one bucket."""
    seal_wait_s: float = 10.0
    """Longest wait of a begin for the sync before to be sealed; then the receiver is left out."""
    commit_timeout_s: float = 120.0
    """Longest time that a sync may need to be sealed."""


@dataclass(kw_only=True, slots=True)
class _OpenSync:
    """What a sync is between begin and commit."""

    begin: SyncBegin
    members: list[UpdatableEngine] = field(default_factory=list)
    receiver: FacadeEngine | None = None
    """None if the receiver does not take part, for this reason:"""
    absence: tuple[DiscardReason, str] = (DiscardReason.RECEIVER_RESTARTED, "the receiver did not take part")
    num_buckets: int = 0
    digests: dict[str, str] = field(default_factory=dict)
    held_s: float = 0.0


class CollectivePublisher:
    """Publishes one source's part of each sync to rollout engines and the receiver."""

    def __init__(
        self, config: CollectiveConfig, *, receiver: FacadeEngine, engines: Sequence[UpdatableEngine] = ()
    ) -> None:
        self._config = config
        self._receiver = receiver
        everyone = (receiver, *engines)
        self._threads = ThreadPoolExecutor(2 * len(everyone) + 2, thread_name_prefix="publisher")
        self._membership = Membership(everyone, config, self._threads)
        self._open: _OpenSync | None = None
        self._sealing: Future[None] | None = None
        self._outcomes: deque[SyncOutcome] = deque(maxlen=MAX_OUTCOMES)

    # --- the Publisher interface ----------------------------------------------------------

    def begin(
        self,
        weight_version: int,
        *,
        rollout_id: int | None = None,
        train_step: int | None = None,
        num_bytes: int = 0,
        held_s: float = 0.0,
    ) -> None:
        """Make sure of the group, pause the engines, open the sync.

        Raises TransportError only for a weight version that is no positive integer: who does not
        answer is left out.
        """
        if type(weight_version) is not int or weight_version < 1:
            raise TransportError(f"weight version {weight_version!r} is no positive integer")
        self.abort(f"weight version {weight_version} began")
        begin = opening(
            self._config,
            weight_version,
            sources=self._config.sources or (self._config.source,),
            rollout_id=rollout_id,
            train_step=train_step,
            num_bytes=num_bytes,
        )
        self._open = sync = _OpenSync(begin=begin, held_s=held_s)
        with self._held(sync):
            sync.members = self._prepared(sync)

    def put_bucket(self, tensors: Sequence[NamedTensor]) -> None:
        """Broadcast the tensors; returns when every member has taken them in.

        Raises TransportError if a member dies or does not take part in time; the sync is given up
        then, engines generate again, and the next begin builds a new group.
        """
        sync = self._open
        if sync is None:
            raise TransportError("put_bucket without begin, or after a sync that failed")
        with self._held(sync):
            group = self._membership.group
            if group is None:
                return
            try:
                self._send(sync, group, tensors)
            except TransportError as error:
                self._fail(sync, error)
                raise

    def commit(self) -> SyncReport:
        """Let the engines generate and the receiver seal; the outcome comes in `outcomes()`."""
        sync, self._open = self._open, None
        if sync is None:
            raise TransportError("commit without begin, or after a sync that failed")
        receiver = sync.receiver
        with self._held(sync):
            self._resume(sync)
        if receiver is not None:
            self._sealing = self._threads.submit(self._finish, sync, receiver)
        else:
            self._give_up(sync, *sync.absence)
        return SyncReport(
            weight_version=sync.begin.weight_version,
            published=receiver is not None,
            reason="" if receiver is not None else sync.absence[0],
            held_s=sync.held_s,
        )

    def abort(self, reason: str) -> None:
        """Give the open sync up and let the engines generate."""
        sync, self._open = self._open, None
        if sync is not None:
            self._end(sync, DiscardReason.PUBLISHER_ABORTED, reason)

    def outcomes(self) -> list[SyncOutcome]:
        """What became of syncs, as far as known and not asked for before."""
        found = list(self._outcomes)
        self._outcomes.clear()
        return found

    def close(self, timeout_s: float = 10.0) -> None:
        """Wait for the last seal, within `timeout_s` seconds, then leave the group."""
        self.abort("the publisher was closed")
        if self._sealing is not None:
            wait_for([self._sealing], timeout=timeout_s)
        self._outcomes.extend(outcome_of(note) for note in self._receiver.untold())
        self._membership.leave()
        self._receiver.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # --- helpers --------------------------------------------------------------------------

    def _prepared(self, sync: _OpenSync) -> list[UpdatableEngine]:
        """Members that are paused, idle and in the group; the receiver has begun."""
        left_out: set[UpdatableEngine] = set()
        if self._is_sealing():
            left_out.add(self._receiver)
            detail = f"the receiver had not sealed an earlier version after {self._config.seal_wait_s:g} s"
            sync.absence = (DiscardReason.PUBLISHER_DEADLINE, detail)
        while members := self._membership.members(without=left_out):
            failed = failures(self._membership.each(members, lambda engine: self._prepare(engine, sync)))
            if not failed:
                break
            for engine, error in failed:
                logger.warning("%s is not ready and is left out: %s", engine.name, error)
                left_out.add(engine)
        sync.receiver = self._receiver if self._receiver in members else None
        return members

    def _prepare(self, engine: UpdatableEngine, sync: _OpenSync) -> None:
        timeout_s = self._config.prepare_timeout_s
        if engine is self._receiver:
            self._outcomes.extend(self._receiver.tell_given_up(timeout_s))
            self._receiver.begin(sync.begin, timeout_s)
        engine.pause(timeout_s)
        engine.flush(timeout_s)

    def _send(self, sync: _OpenSync, group: Group, tensors: Sequence[NamedTensor]) -> None:
        ready = [(name, _ready(tensor, group.device)) for name, tensor in tensors]
        if group.device.type == "cuda":  # another thread sends, on a stream of its own
            torch.cuda.current_stream(group.device).synchronize()
        header = BucketHeader(
            sync_id=sync.begin.sync_id,
            source=self._config.source,
            index=sync.num_buckets,
            weight_version=sync.begin.weight_version,
            tensors=tuple(tensor_meta(name, tensor) for name, tensor in ready),
        )
        if problem := next(filter(None, (tensor.problem() for tensor in header.tensors)), None):
            raise TransportError(f"a bucket cannot be sent: {problem}")
        timeout_s = self._config.group_timeout_s
        # Asked first, broadcast after: a member that refuses at once is seen before the deadline.
        futures: list[Future[None]] = [
            self._threads.submit(engine.receive_bucket, header, group.name, timeout_s + ANSWER_MARGIN_S)
            for engine in sync.members
        ]
        futures.append(
            self._threads.submit(group.broadcast, [tensor for _, tensor in ready], timeout_s=timeout_s)
        )
        if self._hashes(ready):
            sync.digests.update((name, tensor_digest(_host_bytes(tensor))) for name, tensor in ready)
        done, pending = wait_for(
            futures, timeout=timeout_s + 2 * ANSWER_MARGIN_S, return_when=FIRST_EXCEPTION
        )
        for future in done:
            if (error := future.exception()) is not None:
                raise TransportError(f"bucket {header.index} in group {group.name}: {error}") from error
        if pending:
            raise TransportError(f"bucket {header.index} in group {group.name}: not taken in time")
        sync.num_buckets += 1

    def _hashes(self, tensors: Sequence[NamedTensor]) -> bool:
        if self._config.source_digests is not None:
            return self._config.source_digests
        return all(tensor.device.type == "cpu" for _, tensor in tensors)

    def _finish(self, sync: _OpenSync, receiver: FacadeEngine) -> None:
        begin = sync.begin
        done = SourceDone(
            sync_id=begin.sync_id,
            source=self._config.source,
            num_buckets=sync.num_buckets,
            digests=sync.digests,
            held_s=sync.held_s,
        )
        commit = SyncCommit(sync_id=begin.sync_id, weight_version=begin.weight_version)
        try:
            self._outcomes.append(receiver.finish(done, commit, self._config.commit_timeout_s))
        except TransportError as error:
            self._give_up(sync, DiscardReason.RECEIVER_RESTARTED, str(error))

    def _is_sealing(self) -> bool:
        """Whether the receiver, and the connection to it, is still busy with the sync before."""
        if self._sealing is None:
            return False
        return bool(wait_for([self._sealing], timeout=self._config.seal_wait_s).not_done)

    def _fail(self, sync: _OpenSync, error: TransportError) -> None:
        self._open = None
        self._membership.leave(sync.members)
        self._end(sync, DiscardReason.GROUP_FAILED, str(error))

    def _end(self, sync: _OpenSync, reason: DiscardReason, detail: str) -> None:
        """Give a sync up: the receiver is told now, or when it answers again."""
        if sync.receiver is None:
            self._give_up(sync, reason, detail)
        else:
            abort = SyncAbort(sync_id=sync.begin.sync_id, reason=reason, detail=detail, held_s=sync.held_s)
            try:
                self._outcomes.append(sync.receiver.abort(abort, self._config.probe_timeout_s))
            except TransportError as error:
                logger.info("%s was not told of the abort: %s", self._receiver.name, error)
                self._give_up(sync, reason, detail)
        self._resume(sync)

    def _give_up(self, sync: _OpenSync, reason: DiscardReason, detail: str) -> None:
        """Its outcome is known when the receiver has been told."""
        logger.warning("weight version %d is given up: %s (%s)", sync.begin.weight_version, reason, detail)
        self._receiver.give_up(given_up(sync.begin, reason, detail, held_s=sync.held_s))

    def _resume(self, sync: _OpenSync) -> None:
        timeout_s = self._config.probe_timeout_s
        for engine, error in failures(self._membership.each(sync.members, lambda e: e.resume(timeout_s))):
            logger.warning("%s does not generate again: %s", engine.name, error)

    @contextmanager
    def _held(self, sync: _OpenSync) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            sync.held_s += time.perf_counter() - began


def _ready(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The tensor where it can travel, contiguous; itself if it is that already."""
    return tensor.detach().to(device).contiguous()


def _host_bytes(tensor: torch.Tensor):
    return tensor.cpu().view(-1).view(torch.uint8).numpy()
