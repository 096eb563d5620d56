"""Posts versions of the small model of fakes.sync into a mailbox."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from fakes.sync import content

from live_eval.digests import tensor_digest
from live_eval.tensor_files import build_header
from protocol.messages import SourceDone, SyncBegin, TensorMeta

if TYPE_CHECKING:
    from live_eval.mailbox import Mailbox


def write_tensors(path: Path, tensors: Sequence[TensorMeta], salt: int) -> dict[str, str]:
    """A safetensors file of `fakes.sync.content`; the digests."""
    prefix, _ = build_header(tensors)
    data = [content(tensor, salt) for tensor in tensors]
    path.write_bytes(prefix + np.concatenate(data).tobytes())
    return {tensor.name: tensor_digest(each) for tensor, each in zip(tensors, data, strict=True)}


def post(
    mailbox: Mailbox, of: SyncBegin, *files: Sequence[TensorMeta], source: str = "pp_0", life: str = "life"
) -> Path:
    """An entry with these files; where it is."""
    draft = mailbox.draft(life, of.weight_version, source)
    digests: dict[str, str] = {}
    for number, tensors in enumerate(files):
        digests |= write_tensors(draft.path / f"{number:05d}.safetensors", tensors, of.weight_version)
    draft.post(of, SourceDone(sync_id=of.sync_id, source=source, num_buckets=len(files), digests=digests))
    return mailbox.directory / f"{life}-{of.weight_version:08d}-{source}"
