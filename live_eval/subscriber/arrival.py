"""Moves arrived bytes to their place and takes their digest on the way.

Knows two blocks of bytes and nothing else. Invariant: the digest is that of the bytes that were put
in their place; where the place is memory it is read from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import xxhash

from live_eval.reasons import DiscardReason
from live_eval.store.written_shard import FileRange
from live_eval.subscriber.expected import SyncFault
from protocol.payload import payload_layout

if TYPE_CHECKING:
    from protocol.messages import TensorMeta

PIECE_BYTES = 1 << 20
"""Copied, then read again for the digest while it is still in the cache."""


class Source(Protocol):
    """Bytes that arrived, or that lie where they can be read."""

    @property
    def nbytes(self) -> int:
        """How many."""
        ...

    def piece(self, start: int, end: int) -> np.ndarray:
        """Bytes `start` to `end` as uint8, PIECE_BYTES at most; good until the next call."""
        ...


class Arrived:
    """A payload in memory."""

    def __init__(self, payload: np.ndarray) -> None:
        """SyncFault (wrong_size) if it is anything but bytes."""
        if payload.dtype != np.uint8 or payload.ndim != 1:
            detail = f"the payload is no array of bytes but {payload.dtype} in {payload.ndim} dimensions"
            raise SyncFault(DiscardReason.WRONG_SIZE, detail)
        self._payload = payload

    @property
    def nbytes(self) -> int:
        """Bytes of the payload."""
        return self._payload.nbytes

    def piece(self, start: int, end: int) -> np.ndarray:
        """A view of it."""
        return self._payload[start:end]


def unpack(
    payload: Source, tensors: Sequence[TensorMeta], targets: Sequence[np.ndarray | FileRange]
) -> list[str]:
    """Copy each tensor of a payload (see protocol.payload) to its target; the digests, in order.

    SyncFault (wrong_size), before anything is copied, if the payload is not as large as these
    tensors are.
    """
    layout = payload_layout(tensors)
    if payload.nbytes != layout.num_bytes:
        raise SyncFault(
            DiscardReason.WRONG_SIZE,
            f"the payload is {payload.nbytes} bytes, its header says {layout.num_bytes}",
        )
    return [
        copy_digest(payload, offset, target) for offset, target in zip(layout.offsets, targets, strict=True)
    ]


def copy_digest(source: Source, offset: int, target: np.ndarray | FileRange) -> str:
    """Copy bytes from `offset` on; the digest of the copy, as live_eval.digests.tensor_digest would give it.

    StoreFull or StoreError if a file cannot take them, SyncFault if the source cannot give them.
    """
    state = xxhash.xxh3_128()
    for start in range(0, len(target), PIECE_BYTES):
        end = min(start + PIECE_BYTES, len(target))
        piece = source.piece(offset + start, offset + end)
        if isinstance(target, FileRange):
            target.write(piece, start)
        else:
            place = target[start:end]
            np.copyto(place, piece)
            piece = place
        state.update(piece.data)
    return state.hexdigest()
