"""The trainer's publisher of transport disk: staged syncs as files in a mailbox, with faults.

begin = a draft is made    bucket, payload = a file is written    commit = the draft is posted
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.faults.damage import damaged_bytes, lying
from benchmarks.faults.model import BUCKETS, Origin, incarnation_id
from benchmarks.faults.traps import AFTER, BEFORE, Trap, TrapFile
from live_eval.mailbox import Draft, Mailbox
from live_eval.publisher import mail
from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher

if TYPE_CHECKING:
    from benchmarks.faults.trainer import TrainerSettings
    from live_eval.publisher.base import Publisher
    from live_eval.publisher.staging import StagedBucket

SLOT_BYTES = 1 << 20


class FaultyMail:
    """Stands between the sender's thread and its files."""

    def __init__(self, traps: TrapFile, life: int) -> None:
        self._traps = traps
        self._life = life
        self._version = 0
        self._draft, self._write, self._post = Mailbox.draft, mail.write_bucket, Draft.post

    def install(self) -> None:
        """From now on, in this process."""
        wire = self

        def draft(self: Mailbox, life: str, weight_version: int, source: str) -> Draft:
            return wire.draft(self, life, weight_version, source)

        def post(self: Draft, message: Any, done: Any = None, **more: Any) -> None:
            wire.post(self, message, done, **more)

        Mailbox.draft, Draft.post = draft, post  # type: ignore[method-assign]
        mail.write_bucket = self.write_bucket

    def draft(self, mailbox: Mailbox, life: str, weight_version: int, source: str) -> Draft:
        """A sync begins to be written."""
        self._version = weight_version
        self._traps.spring("begin", BEFORE)
        made = self._draft(mailbox, life, weight_version, source)
        self._traps.spring("begin", AFTER)
        return made

    def write_bucket(self, path: Path, bucket: StagedBucket) -> dict[str, str]:
        """One file."""
        index = int(path.stem)
        trap = self._traps.spring("bucket", BEFORE, index)
        digests = self._write(path, bucket)
        if trap is not None and trap.action == "repeat":
            path.with_name(f"{index + 50:05d}.safetensors").write_bytes(path.read_bytes())
        trap = self._traps.spring("payload", BEFORE, index)
        if trap is not None:
            self._damage(trap, path, index)
        self._traps.spring("bucket", AFTER, index)
        return digests

    def _damage(self, trap: Trap, path: Path, index: int) -> None:
        if trap.action == "lost":
            path.unlink()
            return
        data = path.read_bytes()
        (size,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        by_name = {tensor.name: tensor for tensor in BUCKETS[index]}
        tensors = [by_name[name] for name in sorted(header, key=lambda name: header[name]["data_offsets"])]
        body = np.frombuffer(data[8 + size :], dtype=np.uint8)
        changed = damaged_bytes(trap, body, tensors, Origin(self._life, self._version), aligned=False)
        path.write_bytes(data[: 8 + size] + changed.tobytes())

    def post(self, draft: Draft, message: Any, done: Any, **more: Any) -> None:
        """The rename."""
        trap = self._traps.spring("source_done", BEFORE)
        if trap is not None and trap.action == "lie" and done is not None:
            done = lying(done, trap.variant)
        self._traps.spring("commit", BEFORE)
        self._post(draft, message, done, **more)
        self._traps.spring("commit", AFTER)


def disk_publisher(traps: TrapFile, settings: TrainerSettings) -> Publisher:
    """Stages as the one over Ray does; a thread writes files."""
    where = settings.where
    FaultyMail(traps, settings.life).install()
    config = RayPublisherConfig(
        run_id="faults",
        slot_bytes=SLOT_BYTES,
        incarnation_id=incarnation_id(settings.life),
        deadline_s=settings.deadline_s,
        sync_timeout_s=where["sync_timeout_s"],
    )
    sender = mail.MailSender(
        Mailbox(Path(where["mail_dir"])),
        life=incarnation_id(settings.life).replace("-", ""),
        source=config.source,
        sync_timeout_s=config.sync_timeout_s,
    )
    return RayRefPublisher(None, config, sender=sender)
