"""How the tensors of a bucket lie in one block of bytes, for transports that carry buckets as bytes.

Invariant: the layout follows from the header alone, so that both sides work it out and
nothing of it travels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from protocol.messages import TensorMeta

ALIGNMENT = 64
"""Every tensor starts at a multiple of this many bytes: aligned for each dtype, and a cache line."""


class Layout(NamedTuple):
    """Where each tensor of a bucket starts, and the size of the whole."""

    offsets: tuple[int, ...]
    """Bytes from the start of the payload, one per tensor in header order."""
    num_bytes: int
    """End of the last tensor; there is no padding after it."""


def payload_layout(tensors: Iterable[TensorMeta]) -> Layout:
    """The layout of a bucket: tensors in header order, each at the next multiple of ALIGNMENT.

    Raises KeyError for a dtype that protocol.dtypes does not know.
    """
    offsets: list[int] = []
    end = 0
    for tensor in tensors:
        start = -(-end // ALIGNMENT) * ALIGNMENT
        offsets.append(start)
        end = start + tensor.num_bytes
    return Layout(tuple(offsets), end)
