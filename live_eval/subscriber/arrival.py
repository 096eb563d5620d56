"""Moves arrived bytes to their place and takes their digest on the way.

Knows two blocks of bytes and nothing else. Invariant: the digest is that of the bytes that were put
in their place; where the place is memory it is read from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from live_eval.reasons import DiscardReason
from live_eval.store.written_shard import FileRange
from live_eval.subscriber.expected import SyncFault
from protocol.payload import payload_layout

if TYPE_CHECKING:
    from protocol.messages import TensorMeta

PIECE_BYTES = 256 * 1024
"""Copied, then read again for the digest while it is still in the cache."""


def unpack(
    payload: np.ndarray, tensors: Sequence[TensorMeta], targets: Sequence[np.ndarray | FileRange]
) -> list[str]:
    """Copy each tensor of a payload (see protocol.payload) to its target; the digests, in order.

    SyncFault (wrong_size), before anything is copied, if the payload is not as large as these
    tensors are.
    """
    layout = payload_layout(tensors)
    if payload.dtype != np.uint8 or payload.ndim != 1 or payload.nbytes != layout.num_bytes:
        raise SyncFault(
            DiscardReason.WRONG_SIZE,
            f"the payload is {payload.nbytes} bytes of {payload.dtype}, its header says {layout.num_bytes}",
        )
    return [
        copy_digest(payload[start : start + len(target)], target)
        for start, target in zip(layout.offsets, targets, strict=True)
    ]


def copy_digest(source: np.ndarray, target: np.ndarray | FileRange) -> str:
    """Copy uint8 bytes and return the digest of the copy, as live_eval.digests.tensor_digest would.

    StoreFull or StoreError if a file cannot take them.
    """
    state = xxhash.xxh3_128()
    for start in range(0, len(target), PIECE_BYTES):
        piece = source[start : start + PIECE_BYTES]
        if isinstance(target, FileRange):
            target.write(piece, start)
        else:
            place = target[start : start + PIECE_BYTES]
            np.copyto(place, piece)
            piece = place
        state.update(piece.data)
    return state.hexdigest()
