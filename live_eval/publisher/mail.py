"""The sender of transport `disk`: staged syncs as safetensors files in a mailbox, written by a thread.

Invariants: nothing here is on the training thread; a version that the reader is too slow for is given up
before it fills the disk, and its note is posted, so that the record is complete; what is posted outlives
this process.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from live_eval.digests import tensor_digest
from live_eval.publisher.notes import given_up, outcome_of
from live_eval.publisher.sender_thread import SenderThread, StagedSync
from live_eval.reasons import DiscardReason
from live_eval.tensor_files import build_header
from protocol.errors import ProtocolError
from protocol.messages import SourceDone, SyncGivenUp

if TYPE_CHECKING:
    from pathlib import Path

    from live_eval.mailbox import Draft, Mailbox
    from live_eval.publisher.staging import StagedBucket

logger = logging.getLogger(__name__)

MAX_WAITING = 2
"""Versions of one source that lie in the mailbox at once."""
POLL_S = 0.1


class MailSender(SenderThread):
    """Posts one source's part of each sync; outcomes are those of versions that were given up here.

    What became of the others the reader records. `life` is the short name of the trainer's incarnation.
    """

    def __init__(self, mailbox: Mailbox, *, life: str, source: str, sync_timeout_s: float) -> None:
        super().__init__("live-eval-mail")
        self._mailbox = mailbox
        self._life = life
        self._source = source
        self._sync_timeout_s = sync_timeout_s
        self._start()

    def _run(self) -> None:
        while True:
            item, _ = self._next()
            if item is None:
                return
            try:
                self._post(item)
            except Exception as error:  # the thread's supervisor: one version may fail, the next is posted
                logger.exception("a version could not be posted")
                if isinstance(item, StagedSync):
                    detail = f"it could not be written: {type(error).__name__}: {error}"
                    self.submit(given_up(item.begin, DiscardReason.PUBLISHER_ABORTED, detail))
            finally:
                if isinstance(item, StagedSync):
                    item.release()

    def _post(self, item: StagedSync | SyncGivenUp) -> None:
        if isinstance(item, SyncGivenUp):
            self._note(item)
        elif not self._has_room():
            detail = f"{MAX_WAITING} versions before it were not taken within {self._sync_timeout_s:g} s"
            self._note(given_up(item.begin, DiscardReason.PUBLISHER_DEADLINE, detail))
        else:
            self._write(item)

    def _has_room(self) -> bool:
        deadline = time.monotonic() + self._sync_timeout_s
        while self._mailbox.num_waiting(self._source) >= MAX_WAITING:
            if time.monotonic() > deadline or self._closing:
                return False
            time.sleep(POLL_S)
        return True

    def _write(self, sync: StagedSync) -> None:
        draft = self._mailbox.draft(self._life, sync.begin.weight_version, self._source)
        try:
            digests: dict[str, str] = {}
            for index, bucket in enumerate(sync.buckets):
                digests.update(write_bucket(draft.path / f"{index:05d}.safetensors", bucket))
            draft.post(
                sync.begin,
                SourceDone(
                    sync_id=sync.begin.sync_id,
                    source=sync.source,
                    num_buckets=len(sync.buckets),
                    digests=digests,
                ),
            )
        except (OSError, ProtocolError):
            draft.drop()
            raise

    def _note(self, note: SyncGivenUp) -> None:
        self._report(outcome_of(note))
        post_note(self._mailbox, note, life=self._life, source=self._source)


def post_note(mailbox: Mailbox, note: SyncGivenUp, *, life: str, source: str) -> None:
    """Post that a version will not come; it is only logged if that cannot be written either."""
    draft: Draft | None = None
    try:
        draft = mailbox.draft(life, note.weight_version, source)
        draft.post(note)
    except OSError as error:
        logger.warning("weight version %d: its note cannot be posted: %s", note.weight_version, error)
        if draft is not None:
            draft.drop()


def write_bucket(path: Path, bucket: StagedBucket) -> dict[str, str]:
    """Write the bucket's tensors as a safetensors file, in order; their digests."""
    prefix, _ = build_header(bucket.tensors)
    digests: dict[str, str] = {}
    with path.open("wb", buffering=0) as file:
        file.write(prefix)
        for tensor, view in zip(bucket.tensors, bucket.views(), strict=True):
            done = 0
            while done < len(view):
                done += file.write(view[done:])  # pyright: ignore[reportArgumentType]  # its stub has no buffer
            digests[tensor.name] = tensor_digest(view)
    return digests
