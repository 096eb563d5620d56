"""What may happen to bytes and headers on their way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from benchmarks.faults.model import Origin, Tensor, content
from protocol.messages import BucketHeader, SourceDone, SyncBegin, SyncCommit, TensorMeta
from protocol.payload import payload_layout

if TYPE_CHECKING:
    from benchmarks.faults.traps import Trap

NUM_LIES = 7
LIED_VERSION = 0
"""The weight version of a begin that lies; the refusal is on record under it."""


def damaged_bytes(
    trap: Trap, payload: np.ndarray, tensors: Sequence[Tensor], origin: Origin, *, aligned: bool = True
) -> np.ndarray:
    """A payload that is not what it was; itself for an action that does nothing to bytes."""
    data = payload.copy()
    offsets = _offsets(tensors, aligned=aligned)
    match trap.action:
        case "corrupt":
            data[(trap.variant * 7919) % len(data)] ^= 1
            if aligned:  # never a byte of the padding, which nobody keeps
                data[:] = payload
                data[offsets[-1] + trap.variant % tensors[-1].num_bytes] ^= 1
        case "short":
            data = data[: -4 * (1 + trap.variant % 8)]
        case "long":
            data = np.concatenate([data, np.zeros(64 * (1 + trap.variant % 8), dtype=np.uint8)])
        case "swap":
            first, second = _same_size(tensors)
            size = tensors[first].num_bytes
            a, b = offsets[first], offsets[second]
            data[a : a + size], data[b : b + size] = payload[b : b + size], payload[a : a + size]
        case "stale":
            before = Origin(origin.life, max(origin.weight_version - 1, 0))
            piece = np.frombuffer(content(before, tensors[0]), dtype=np.uint8)
            data[offsets[0] : offsets[0] + len(piece)] = piece
    return data


def _offsets(tensors: Sequence[Tensor], *, aligned: bool) -> list[int]:
    if aligned:
        metas = [TensorMeta(tensor.name, tensor.dtype, tensor.shape) for tensor in tensors]
        return list(payload_layout(metas).offsets)
    ends = np.cumsum([tensor.num_bytes for tensor in tensors])
    return [0, *map(int, ends[:-1])]


def _same_size(tensors: Sequence[Tensor]) -> tuple[int, int]:
    """Two tensors whose bytes can be exchanged: only some buckets hold such."""
    for first, tensor in enumerate(tensors):
        for second in range(first + 1, len(tensors)):
            if tensors[second].num_bytes == tensor.num_bytes:
                return first, second
    return 0, 0


def lying(message: Any, variant: int) -> Any:
    """A message of a sync that says what is not so."""
    replace = msgspec.structs.replace
    if isinstance(message, SyncBegin):
        return replace(message, sources=()) if variant % 2 else replace(message, weight_version=LIED_VERSION)
    if isinstance(message, SourceDone):
        if variant % 2:
            return replace(message, num_buckets=message.num_buckets + 1)
        return replace(message, digests=dict.fromkeys(message.digests, "0" * 32))
    if isinstance(message, SyncCommit):
        return replace(message, weight_version=message.weight_version + 1)
    return _lying_header(message, variant) if isinstance(message, BucketHeader) else message


def _lying_header(header: BucketHeader, variant: int) -> BucketHeader:
    replace = msgspec.structs.replace
    first, *rest = header.tensors
    match variant % NUM_LIES:
        case 0:
            return replace(header, weight_version=header.weight_version + 1)
        case 1:
            return replace(header, source="pp_9")
        case 2:
            return replace(header, index=header.index + 1)
        case 3:
            return replace(header, tensors=(TensorMeta("no." + first.name, first.dtype, first.shape), *rest))
        case 4:
            dtype = "float16" if first.dtype == "bfloat16" else "int32"
            return replace(header, tensors=(TensorMeta(first.name, dtype, first.shape), *rest))
        case 5:
            shape = (first.shape[0] * 2, *first.shape[1:])
            return replace(header, tensors=(TensorMeta(first.name, first.dtype, shape), *rest))
        case _:
            return replace(header, tensors=(first, first, *rest[1:]) if rest else (first, first))
