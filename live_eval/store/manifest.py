"""The manifest of a version: what it is, what is in it, and the digest of every tensor.

The last file that is written into a version, so a directory with a manifest had all its files.
Invariant: `digest` is the digest of `tensors`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from live_eval.digests import version_digest
from live_eval.errors import CorruptVersion

MANIFEST_NAME = "manifest.json"
FORMAT = 1


class TensorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of a version."""

    name: str
    dtype: str
    """Wire name, see protocol.dtypes."""
    shape: tuple[int, ...]
    digest: str
    file: str
    origin: Literal["sync", "base"] = "sync"
    """Whether the sync carried it, or it is the base checkpoint's because no sync carries it."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What manifest.json holds."""

    format: int = FORMAT
    policy_version: int
    weight_version: int
    incarnation: int
    run_id: str
    rollout_id: int | None = None
    train_step: int | None = None
    num_tensors: int
    """Tensors in the files, those from the base included."""
    num_bytes: int
    """Sum of those tensors' data in bytes."""
    digest: str
    began_at: float
    """Seconds since the epoch, like `sealed_at`."""
    sealed_at: float
    tensors: tuple[TensorRecord, ...]
    absent: tuple[str, ...] = ()
    """Tensors of the model that the sync did not carry: the tied head, and those of origin base."""
    side_files: dict[str, str] = {}
    """Digests of the other files: index, config, tokenizer."""

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """Read a version directory's manifest; CorruptVersion if missing, unreadable or inconsistent."""
        path = directory / MANIFEST_NAME
        try:
            manifest = msgspec.json.decode(path.read_bytes(), type=cls)
        except OSError as error:
            raise CorruptVersion(f"{path}: cannot be read ({error.strerror})") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorruptVersion(f"{path}: is no manifest ({error})") from error
        if manifest.format != FORMAT:
            raise CorruptVersion(f"{path}: has format {manifest.format}, this program reads {FORMAT}")
        if manifest.digest != digest_of(manifest.tensors):
            raise CorruptVersion(f"{path}: its digest is not that of the tensors it lists")
        return manifest

    def encode(self) -> bytes:
        """The bytes of manifest.json, indented for people."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)


def digest_of(tensors: tuple[TensorRecord, ...]) -> str:
    """The version digest of these tensors."""
    return version_digest((t.name, t.dtype, t.shape, t.digest) for t in tensors)
