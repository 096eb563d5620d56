"""Takes versions out of a mailbox (live_eval.mailbox) into the receiver, one after the other.

Knows files of tensors and the receiver, not who wrote them. Invariants: an entry is removed when it has
its outcome, and only then; a version of several sources is begun when all have posted, or when waiting is
in vain; what a life before this one had begun is not begun again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from io import FileIO
from typing import TYPE_CHECKING

from live_eval.errors import CorruptVersion, TransportError
from live_eval.reasons import DiscardReason
from live_eval.subscriber.delta import BrokenChain
from live_eval.subscriber.expected import SyncFault
from live_eval.tensor_files import TensorSlot, read_chunks, read_header
from protocol.messages import BucketHeader, SourceDone, SyncAccepted, SyncBegin, SyncCommit, SyncGivenUp

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from live_eval.mailbox import Entry, Mailbox
    from live_eval.subscriber.delta import DeltaTip
    from live_eval.subscriber.receiver import Receiver
    from protocol.messages import TensorMeta

logger = logging.getLogger(__name__)

BUCKET_BYTES = 256 << 20
"""A file is taken in pieces of about this size, so that the sync is never silent for long."""
PATIENCE_S = 60.0
"""Longest wait for the other sources of a version."""
POLL_S = 0.5


class MailReader:
    """Reads one mailbox; used by one thread."""

    def __init__(
        self,
        mailbox: Mailbox,
        receiver: Receiver,
        *,
        tip: DeltaTip | None = None,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tip` is where deltas are applied, if any come."""
        self._mailbox = mailbox
        self._receiver = receiver
        self._tip = tip
        self._patience_s = patience_s
        self._clock = clock
        self._seen: dict[str, float] = {}
        """Sync -> when its first entry was seen."""

    def run_once(self) -> int:
        """Take what is there; the number of versions that have an outcome now."""
        everything = self._mailbox.entries()
        syncs: dict[str, list[Entry]] = {}
        for entry in everything:
            syncs.setdefault(entry.message.sync_id, []).append(entry)
        taken = 0
        for sync_id, entries in syncs.items():
            if not self._is_due(sync_id, entries, everything):
                break  # later versions wait, so that they come in their order
            try:
                self._take(entries)
            finally:  # also one that nobody foresaw: it must not stand in the way of the others for ever
                for entry in entries:
                    entry.remove()
            self._seen.pop(sync_id, None)
            taken += 1
        return taken

    def _is_due(self, sync_id: str, entries: list[Entry], everything: list[Entry]) -> bool:
        since = self._seen.setdefault(sync_id, self._clock())
        begin = entries[0].begin
        if begin is None or any(entry.given_up for entry in entries):
            return True
        # A source posts in order: one that has posted a later version, or a life that is over, posts no more.
        later = {
            entry.source
            for entry in everything
            if entry.message.incarnation_id == begin.incarnation_id
            and entry.message.weight_version > begin.weight_version
        }
        missing = set(begin.sources) - {entry.source for entry in entries} - later
        over = everything[-1].message.incarnation_id != begin.incarnation_id
        return not missing or over or self._clock() - since > self._patience_s

    def _take(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.given_up is not None:
                self._receiver.given_up(entry.given_up)
        begins = [entry for entry in entries if entry.begin is not None]
        if begins and begins[0].delta is not None:
            self._take_delta(begins[0])
        elif begins and len(begins) == len(entries):
            begin = _slowest(begins)
            if self._receiver.recorded(begin) is None:
                self._receive(begin, begins)

    def _receive(self, begin: SyncBegin, entries: list[Entry]) -> None:
        if not isinstance(self._receiver.handle(begin), SyncAccepted):
            return
        try:
            for entry in entries:
                self._receive_files(begin, entry)
            missing = len(begin.sources) - len(entries)
            if missing > 0:
                detail = f"{missing} of {len(begin.sources)} sources posted nothing"
                self._receiver.fail(begin.sync_id, DiscardReason.SOURCE_DEADLINE, detail)
                return
            self._receiver.handle(SyncCommit(sync_id=begin.sync_id, weight_version=begin.weight_version))
        except SyncFault as fault:
            self._receiver.fail(begin.sync_id, fault.reason, fault.detail)
        except (CorruptVersion, OSError) as error:
            self._receiver.fail(begin.sync_id, DiscardReason.PAYLOAD_LOST, str(error))
        except TransportError as error:  # it has ended meanwhile; the outcome stands
            logger.info("sync %s: %s", begin.sync_id, error)

    def _take_delta(self, entry: Entry) -> None:
        """A delta is applied whether its version is wanted or not; the next one is made from it."""
        begin, delta, tip = entry.begin, entry.delta, self._tip
        assert begin is not None and delta is not None
        if tip is None:
            logger.error("a delta came where none was expected: %s", entry.path)
            return
        broken = ""
        try:
            tip.apply(entry)
        except BrokenChain as error:
            logger.warning("%s", error)
            broken = str(error)
        if not delta["wanted"] or self._receiver.recorded(begin) is not None:
            return
        if broken:
            self._receiver.given_up(given_up_note(begin, broken))
        elif isinstance(self._receiver.handle(begin), SyncAccepted):
            self._receive_tip(begin, tip)

    def _receive_tip(self, begin: SyncBegin, tip: DeltaTip) -> None:
        source = begin.sources[0]
        try:
            for index, metas in enumerate(_cut(tip.tensors())):
                header = BucketHeader(
                    sync_id=begin.sync_id,
                    source=source,
                    index=index,
                    weight_version=begin.weight_version,
                    tensors=tuple(metas),
                )
                for meta, place in zip(metas, self._receiver.open_bucket(header), strict=True):
                    place[:] = tip.read(meta.name)
                self._receiver.bucket_filled(header)
            num_buckets = sum(1 for _ in _cut(tip.tensors()))
            self._receiver.handle(SourceDone(sync_id=begin.sync_id, source=source, num_buckets=num_buckets))
            self._receiver.handle(SyncCommit(sync_id=begin.sync_id, weight_version=begin.weight_version))
        except SyncFault as fault:
            self._receiver.fail(begin.sync_id, fault.reason, fault.detail)
        except TransportError as error:  # it has ended meanwhile; the outcome stands
            logger.info("sync %s: %s", begin.sync_id, error)

    def _receive_files(self, begin: SyncBegin, entry: Entry) -> None:
        source = entry.done.source if entry.done is not None else begin.sources[0]
        index = 0
        for path in entry.files:
            for slots in _pieces(path):
                header = BucketHeader(
                    sync_id=begin.sync_id,
                    source=source,
                    index=index,
                    weight_version=begin.weight_version,
                    tensors=tuple(slot.meta for slot in slots),
                )
                memory = self._receiver.open_bucket(header)
                read_tensors(path, slots, memory)
                self._receiver.bucket_filled(header)
                index += 1
        digests = entry.done.digests if entry.done is not None else {}
        self._receiver.handle(
            SourceDone(sync_id=begin.sync_id, source=source, num_buckets=index, digests=digests)
        )


def read_tensors(path: Path, slots: list[TensorSlot], memory: list[np.ndarray]) -> None:
    """Read the tensors of a safetensors file into uint8 arrays of their sizes."""
    with FileIO(path) as file:
        for slot, place in zip(slots, memory, strict=True):
            done = 0
            for chunk in read_chunks(file, slot) if len(place) else ():
                place[done : done + chunk.size] = chunk
                done += chunk.size


def _slowest(entries: list[Entry]) -> SyncBegin:
    """The begin of the source that was held the longest; else they are alike."""
    begins = [entry.begin for entry in entries if entry.begin is not None]
    return max(begins, key=lambda begin: begin.held_s or 0.0)


def given_up_note(begin: SyncBegin, detail: str) -> SyncGivenUp:
    """The note that this sync's version cannot be made."""
    return SyncGivenUp(
        sync_id=begin.sync_id,
        run_id=begin.run_id,
        incarnation_id=begin.incarnation_id,
        weight_version=begin.weight_version,
        reason=DiscardReason.INCOMPLETE,
        detail=detail,
        rollout_id=begin.rollout_id,
        train_step=begin.train_step,
        held_s=begin.held_s,
    )


def _pieces(path: Path) -> Iterator[list[TensorSlot]]:
    """The file's tensors, in the order of their bytes, in pieces of about BUCKET_BYTES."""
    slots = read_header(path).slots
    in_order = sorted(slots.values(), key=lambda slot: slot.begin)
    for metas in _cut(slot.meta for slot in in_order):
        yield [slots[meta.name] for meta in metas]


def _cut(metas: Iterable[TensorMeta]) -> Iterator[list[TensorMeta]]:
    """In order, in pieces of about BUCKET_BYTES; none is empty."""
    piece: list[TensorMeta] = []
    size = 0
    for meta in metas:
        if piece and size + meta.num_bytes > BUCKET_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(meta)
        size += meta.num_bytes
    if piece:
        yield piece
