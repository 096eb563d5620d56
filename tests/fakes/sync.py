"""A small model's sync as messages, for tests that play the publisher by hand."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import numpy as np

from live_eval.store import BaseCheckpoint
from live_eval.subscriber.expected import ExpectedTensors
from protocol.dtypes import DTYPES
from protocol.messages import BucketHeader, SourceDone, SyncBegin, SyncCommit, TensorMeta

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

EMBED = TensorMeta("model.embed_tokens.weight", "float32", (8, 4))
UP = TensorMeta("model.layers.0.mlp.up_proj.weight", "float32", (4, 4))
DOWN = TensorMeta("model.layers.0.mlp.down_proj.weight", "float32", (4, 4))
NORM = TensorMeta("model.norm.weight", "bfloat16", (4,))
HEAD = TensorMeta("lm_head.weight", "float32", (8, 4))

MODEL = (EMBED, UP, DOWN, NORM)


def expected_tensors(*, tied: bool = False) -> ExpectedTensors:
    """The model's tensors; with `tied` an lm_head that a sync may carry or leave out."""
    required = {tensor.name: tensor for tensor in MODEL}
    if not tied:
        return ExpectedTensors(required=required)
    return ExpectedTensors(required=required, optional={HEAD.name: HEAD}, tied={HEAD.name: EMBED.name})


def begin(
    weight_version: int = 1, *, sources: tuple[str, ...] = ("pp_0",), incarnation: str = "life-1"
) -> SyncBegin:
    """A begin whose sync id follows from incarnation and weight version."""
    return SyncBegin(
        sync_id=f"{incarnation}/{weight_version}",
        run_id="run",
        incarnation_id=incarnation,
        weight_version=weight_version,
        sources=sources,
    )


def bucket(
    of: SyncBegin, index: int, *tensors: TensorMeta, source: str = "pp_0", weight_version: int | None = None
) -> BucketHeader:
    """The header of bucket `index` of `source`."""
    return BucketHeader(
        sync_id=of.sync_id,
        source=source,
        index=index,
        weight_version=of.weight_version if weight_version is None else weight_version,
        tensors=tensors,
    )


def done(
    of: SyncBegin, num_buckets: int, *, source: str = "pp_0", digests: dict[str, str] | None = None
) -> SourceDone:
    """The end of a source."""
    return SourceDone(sync_id=of.sync_id, source=source, num_buckets=num_buckets, digests=digests or {})


def commit(of: SyncBegin, weight_version: int | None = None) -> SyncCommit:
    """The commit of a sync."""
    return SyncCommit(
        sync_id=of.sync_id, weight_version=of.weight_version if weight_version is None else weight_version
    )


def write_base(path: Path, *, tied: bool = False, tensors: Sequence[TensorMeta] = ()) -> BaseCheckpoint:
    """The model, or these tensors, as a checkpoint of zeros, read back."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": "tiny", "tie_word_embeddings": tied}))
    tensors = tensors or (MODEL if tied else (*MODEL, HEAD))
    entries, end = {}, 0
    for tensor in tensors:
        begin, end = end, end + tensor.num_bytes
        entries[tensor.name] = {
            "dtype": DTYPES[tensor.dtype].safetensors,
            "shape": tensor.shape,
            "data_offsets": [begin, end],
        }
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    data = struct.pack("<Q", len(header)) + header + bytes(end)
    (path / "model.safetensors").write_bytes(data)
    return BaseCheckpoint.read(path)


def content(tensor: TensorMeta, salt: int) -> np.ndarray:
    """Bytes for a tensor that differ by name and salt."""
    seed = np.frombuffer(tensor.name.encode(), dtype=np.uint8).sum(dtype=np.int64) + 1000 * salt
    return np.random.default_rng(int(seed)).integers(0, 60, tensor.num_bytes, dtype=np.uint8)
