"""The life of one sync, from its begin to its one verdict.

    OPEN --commit, and every source is done--> SEAL      the receiver may seal the version
      `----any fault, abort or silence-------> DISCARD   with the reason that came first

Pure: no I/O and no clock; it is told what happened and when. Invariant: there is one
verdict, it never changes, and it is SEAL only if every announced source is done, every
bucket arrived in order with its bytes, all digests agree and the tensors are the model's.
A fault is a verdict at once: nothing that comes later can mend the sync, and its bytes
can be freed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from live_eval.reasons import DiscardReason
from live_eval.subscriber.expected import ExpectedTensors, SyncFault, shown

if TYPE_CHECKING:
    from protocol.messages import BucketHeader, SourceDone, SyncBegin, SyncCommit, TensorMeta


class Decision(StrEnum):
    """What becomes of a sync."""

    SEAL = "seal"
    DISCARD = "discard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """How a sync ended; reason and detail are set for a discard only."""

    decision: Decision
    reason: DiscardReason | None = None
    detail: str = ""

    @property
    def seal(self) -> bool:
        """Whether the sync may become a version."""
        return self.decision is Decision.SEAL


@dataclass(slots=True)
class _Source:
    """What one source has sent so far."""

    num_buckets: int = 0
    done: bool = False
    filling: dict[int, tuple[TensorMeta, ...]] = field(default_factory=dict)
    """Bucket index -> its tensors, for buckets announced and not yet arrived."""
    digests: dict[str, str] = field(default_factory=dict)
    """Tensor name -> digest of the bytes that arrived from this source."""


class SyncSession:
    """Judges one sync.

    `deadline_s` is the longest silence between two events of the sync that is borne; it must
    be longer than the slowest bucket takes.
    """

    def __init__(self, expected: ExpectedTensors, *, begin: SyncBegin, now: float, deadline_s: float) -> None:
        self.begin = begin
        self.verdict: Verdict | None = None
        self.committed = False
        self._expected = expected
        self._deadline_s = deadline_s
        self._last_event = now
        self._sources = {name: _Source() for name in begin.sources}
        self._digests: dict[str, str] = {}
        if not self._sources or len(self._sources) != len(begin.sources):
            self._discard(
                DiscardReason.UNKNOWN_SOURCE, f"a begin must name its sources once each: {begin.sources}"
            )

    @property
    def digests(self) -> dict[str, str]:
        """Tensor name -> digest of what has arrived."""
        return self._digests

    def on_bucket(self, header: BucketHeader, *, now: float) -> None:
        """A bucket is announced. To be asked before a receive is posted.

        Raises SyncFault, and discards the sync, if the bucket is not the next one of its source
        or holds what the model does not; raises it too if the sync has ended already.
        """
        with self._judged(now):
            source = self._source(header.source)
            self._check_place(header, source)
            self._check_tensors(header)
            source.filling[header.index] = header.tensors
            source.num_buckets += 1

    def on_bucket_bytes(self, source: str, index: int, digests: Sequence[str], *, now: float) -> None:
        """The bytes of an announced bucket are there; `digests` are theirs, in header order.

        Raises SyncFault, and discards the sync, if they differ from an earlier copy of a tensor.
        """
        with self._judged(now):
            sender = self._source(source)
            tensors = sender.filling.pop(index, None)
            if tensors is None:
                raise SyncFault(
                    DiscardReason.OUT_OF_ORDER, f"bytes of bucket {index} of {source}, which is not announced"
                )
            for tensor, digest in zip(tensors, digests, strict=True):
                sender.digests[tensor.name] = digest
                if self._digests.setdefault(tensor.name, digest) != digest:
                    raise SyncFault(
                        DiscardReason.DUPLICATE_TENSOR,
                        f"{tensor.name!r} came twice with different bytes, the second time from {source}",
                    )

    def on_source_done(self, done: SourceDone, *, now: float) -> Verdict | None:
        """A source has sent all; the verdict, if this decides it."""
        try:
            with self._judged(now):
                source = self._source(done.source)
                self._check_done(done, source)
                source.done = True
        except SyncFault:
            return self.verdict
        return self._conclude()

    def on_commit(self, commit: SyncCommit, *, now: float) -> Verdict | None:
        """The publisher says that the update is whole; the verdict, or None while a source is not done."""
        try:
            with self._judged(now):
                self._check_version(commit.weight_version, "the commit")
                # With one source nothing of the sync can still be on its way behind its commit.
                if len(self._sources) == 1 and not self._num_buckets:
                    raise SyncFault(DiscardReason.EMPTY, "the commit came without a single bucket")
                self.committed = True
        except SyncFault:
            return self.verdict
        return self._conclude()

    def on_fault(self, reason: DiscardReason, detail: str) -> Verdict:
        """The sync cannot go on for a cause outside of it (abort, store, group, lost payload)."""
        return self.verdict or self._discard(reason, detail)

    def on_tick(self, now: float) -> Verdict | None:
        """Discard a sync that has been silent for longer than its deadline."""
        if self.verdict is not None or now - self._last_event <= self._deadline_s:
            return self.verdict
        waiting = [name for name, source in self._sources.items() if not source.done]
        silence = f"nothing came for {self._deadline_s:g} s"
        if waiting and self.committed and not self._num_buckets:
            return self._discard(DiscardReason.EMPTY, f"a commit, no bucket, and then {silence}")
        if waiting:
            return self._discard(DiscardReason.SOURCE_DEADLINE, f"{silence}; not done: {shown(waiting)}")
        return self._discard(
            DiscardReason.PUBLISHER_LOST, f"{silence}; every source is done, the commit is missing"
        )

    @property
    def _num_buckets(self) -> int:
        return sum(source.num_buckets for source in self._sources.values())

    def _source(self, name: str) -> _Source:
        source = self._sources.get(name)
        if source is None:
            raise SyncFault(
                DiscardReason.UNKNOWN_SOURCE, f"{name!r} is none of the announced {', '.join(self._sources)}"
            )
        return source

    def _check_version(self, weight_version: int, what: str) -> None:
        if weight_version != self.begin.weight_version:
            raise SyncFault(
                DiscardReason.MIXED_VERSIONS,
                f"{what} is of weight version {weight_version}, the begin of {self.begin.weight_version}",
            )

    def _check_place(self, header: BucketHeader, source: _Source) -> None:
        what = f"bucket {header.index} of {header.source}"
        self._check_version(header.weight_version, what)
        if source.done:
            raise SyncFault(DiscardReason.OUT_OF_ORDER, f"{what} after that source was done")
        if header.index != source.num_buckets:
            raise SyncFault(DiscardReason.OUT_OF_ORDER, f"{what} where bucket {source.num_buckets} is next")
        if not header.tensors:
            raise SyncFault(DiscardReason.EMPTY, f"{what} holds no tensor")

    def _check_tensors(self, header: BucketHeader) -> None:
        names = {tensor.name for tensor in header.tensors}
        if len(names) != len(header.tensors):
            raise SyncFault(
                DiscardReason.DUPLICATE_TENSOR,
                f"bucket {header.index} of {header.source} names a tensor twice",
            )
        for tensor in header.tensors:
            self._expected.check(tensor)

    def _check_done(self, done: SourceDone, source: _Source) -> None:
        if source.done:
            raise SyncFault(DiscardReason.OUT_OF_ORDER, f"{done.source} was done before")
        if done.num_buckets != source.num_buckets or source.filling:
            arrived = source.num_buckets - len(source.filling)
            raise SyncFault(
                DiscardReason.INCOMPLETE, f"{done.source} sent {done.num_buckets} buckets, {arrived} arrived"
            )
        if not done.digests:
            return
        if done.digests.keys() != source.digests.keys():
            odd = sorted(done.digests.keys() ^ source.digests.keys())
            raise SyncFault(
                DiscardReason.DIGEST_MISMATCH,
                f"{done.source} has digests of other tensors than came: {shown(odd)}",
            )
        wrong = [name for name, digest in done.digests.items() if digest != source.digests[name]]
        if wrong:
            raise SyncFault(
                DiscardReason.DIGEST_MISMATCH,
                f"{len(wrong)} tensors of {done.source} are not what it sent: {shown(wrong)}",
            )

    def _conclude(self) -> Verdict | None:
        if self.verdict is not None or not self.committed:
            return self.verdict
        if not all(source.done for source in self._sources.values()):
            return None
        try:
            if not self._num_buckets:
                raise SyncFault(DiscardReason.EMPTY, "the commit came without a single bucket")
            self._expected.check_whole(self._digests)
        except SyncFault as fault:
            return self._discard(fault.reason, fault.detail)
        self.verdict = Verdict(decision=Decision.SEAL)
        return self.verdict

    def _discard(self, reason: DiscardReason, detail: str) -> Verdict:
        self.verdict = Verdict(decision=Decision.DISCARD, reason=reason, detail=detail)
        return self.verdict

    @contextmanager
    def _judged(self, now: float) -> Iterator[None]:
        """Refuses whatever comes after the verdict; a fault raised inside becomes the verdict."""
        verdict = self.verdict
        if verdict is not None:
            if verdict.reason is None:
                raise SyncFault(DiscardReason.OUT_OF_ORDER, "the sync is sealed; nothing can be added to it")
            raise SyncFault(verdict.reason, verdict.detail)
        self._last_event = now
        try:
            yield
        except SyncFault as fault:
            self._discard(fault.reason, fault.detail)
            raise
