"""What turns received shards into a checkpoint: base tensors, side files, index, manifest.

Knows the Hugging Face layout and the version before this one, whose unchanged files it hard-links.
Nothing is ever linked to the base checkpoint itself, which others may change. Invariant: the
manifest is written last and lists every file that an engine reads.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.digests import tensor_digest
from live_eval.errors import StoreError
from live_eval.store.checkpoint import INDEX_NAME
from live_eval.store.directories import StoreDirectories, write_file
from live_eval.store.manifest import MANIFEST_NAME, Manifest, TensorRecord, digest_of
from live_eval.store.shard import Shard
from protocol.messages import TensorMeta

if TYPE_CHECKING:
    from live_eval.store.base import BaseCheckpoint
    from live_eval.store.records import VersionRecord

BASE_SHARD_NAME = "base-tensors.safetensors"


class Assembly:
    """Completes staged versions, one after another; remembers the last one that was sealed."""

    def __init__(
        self, base: BaseCheckpoint, directories: StoreDirectories, *, previous: Manifest | None = None
    ) -> None:
        self._base = base
        self._directories = directories
        self._previous = previous

    def sealed(self, manifest: Manifest) -> None:
        """This version is now the one whose unchanged files the next one links."""
        self._previous = manifest

    def complete(
        self, staging: Path, record: VersionRecord, sent: list[TensorRecord], *, sealed_at: float
    ) -> Manifest:
        """Write all that is missing beside the received shards; OSError or StoreError if that fails."""
        names = {tensor.name for tensor in sent}
        tensors = (*sent, *self._base_tensors(staging, self._base.from_base(names)))
        self._directories.spares.trim(0)  # this version needs no more, and their room is its small files'
        self._link_unchanged(staging, sent)
        side_files = self._side_files(staging)
        index = _index(tensors)
        write_file(staging / INDEX_NAME, index)
        side_files[INDEX_NAME] = tensor_digest(index)
        manifest = Manifest(
            policy_version=record.policy_version,
            weight_version=record.weight_version,
            incarnation=record.incarnation,
            run_id=record.run_id,
            rollout_id=record.rollout_id,
            train_step=record.train_step,
            num_tensors=len(tensors),
            num_bytes=_num_bytes(tensors),
            digest=digest_of(tensors),
            began_at=record.began_at,
            sealed_at=sealed_at,
            tensors=tensors,
            absent=tuple(sorted(self._base.known().keys() - names)),
            side_files=side_files,
        )
        write_file(staging / MANIFEST_NAME, manifest.encode())
        return manifest

    def _link(self, name: str, target: Path) -> bool:
        """Link a file of the version before; False if it is gone or cannot be linked."""
        if self._previous is None:
            return False
        with contextlib.suppress(OSError):
            os.link(self._directories.version(self._previous.policy_version) / name, target)
            return True
        return False

    def _base_tensors(self, staging: Path, names: list[str]) -> list[TensorRecord]:
        """Records of the tensors that no sync carries, and the file that holds them."""
        if not names:
            return []
        target = staging / BASE_SHARD_NAME
        digests = {name: self._base.digest(name) for name in names}
        before = self._previous.tensors if self._previous else ()
        same = {t.name: t.digest for t in before if t.file == BASE_SHARD_NAME} == digests
        metas = [self._base.tensors[name] for name in names]
        if not (same and self._link(BASE_SHARD_NAME, target)):
            self._copy_base_tensors(target, metas)
        return [_record(meta, digests[meta.name]) for meta in metas]

    def _copy_base_tensors(self, target: Path, metas: list[TensorMeta]) -> None:
        shard = Shard(target, metas, make=self._directories.spares.open)
        try:
            for meta in metas:
                self._base.copy_tensor(meta.name, into=shard.places[meta.name])
            shard.flush()
        finally:
            shard.close()

    def _link_unchanged(self, staging: Path, sent: Iterable[TensorRecord]) -> None:
        """Replace each shard that the version before has as well, tensor for tensor, by a link to it."""
        if self._previous is None:
            return
        before = {content: file for file, content in _contents(self._previous.tensors).items()}
        for file, content in _contents(sent).items():
            link = staging / f"{file}.link"
            if content in before and self._link(before[content], link):
                os.replace(link, staging / file)

    def _side_files(self, staging: Path) -> dict[str, str]:
        digests = self._base.side_digests
        before = self._previous.side_files if self._previous else {}
        for name, digest in digests.items():
            if before.get(name) == digest and self._link(name, staging / name):
                continue
            data = (self._base.path / name).read_bytes()
            if tensor_digest(data) != digest:
                raise StoreError(f"{self._base.path / name} has changed since the store was opened")
            write_file(staging / name, data)
        return dict(digests)


def _contents(tensors: Iterable[TensorRecord]) -> dict[str, frozenset[tuple[str, str, tuple[int, ...], str]]]:
    files: dict[str, set[tuple[str, str, tuple[int, ...], str]]] = {}
    for tensor in tensors:
        files.setdefault(tensor.file, set()).add((tensor.name, tensor.dtype, tensor.shape, tensor.digest))
    return {file: frozenset(content) for file, content in files.items()}


def _record(meta: TensorMeta, digest: str) -> TensorRecord:
    return TensorRecord(
        name=meta.name, dtype=meta.dtype, shape=meta.shape, digest=digest, file=BASE_SHARD_NAME, origin="base"
    )


def _num_bytes(tensors: Iterable[TensorRecord]) -> int:
    return sum(TensorMeta(tensor.name, tensor.dtype, tensor.shape).num_bytes for tensor in tensors)


def _index(tensors: Sequence[TensorRecord]) -> bytes:
    table = {
        "metadata": {"total_size": _num_bytes(tensors)},
        "weight_map": {tensor.name: tensor.file for tensor in sorted(tensors, key=lambda t: t.name)},
    }
    return json.dumps(table, indent=1).encode()
