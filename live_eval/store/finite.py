"""Finding NaN and infinity in raw tensor bytes of every float dtype, without a framework.

Works on bit patterns, since numpy has neither bfloat16 nor fp8. Knows nothing of models.
"""

from __future__ import annotations

from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from live_eval.tensor_files import FileHeader, read_chunks


class _Pattern(NamedTuple):
    """An element is not finite if its bits without the sign are at least `limit`."""

    unsigned: type[np.unsignedinteger]
    mask: int
    limit: int


_PATTERNS: dict[str, _Pattern] = {
    "float64": _Pattern(np.uint64, 0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
    "float32": _Pattern(np.uint32, 0x7FFF_FFFF, 0x7F80_0000),
    "float16": _Pattern(np.uint16, 0x7FFF, 0x7C00),
    "bfloat16": _Pattern(np.uint16, 0x7FFF, 0x7F80),
    "float8_e4m3fn": _Pattern(np.uint8, 0x7F, 0x7F),  # no infinity: one NaN of each sign
    "float8_e5m2": _Pattern(np.uint8, 0x7F, 0x7C),
    "float8_e8m0fnu": _Pattern(np.uint8, 0xFF, 0xFF),  # no sign and no infinity
}


def all_finite(dtype: str, data: np.ndarray) -> bool:
    """Whether uint8 array `data`, whole elements of `dtype`, holds neither NaN nor infinity.

    Integer and bool dtypes are always finite.
    """
    pattern = _PATTERNS.get(dtype)
    if pattern is None or data.size == 0:
        return True
    bits = data.view(pattern.unsigned)
    return int(np.bitwise_and(bits, pattern.unsigned(pattern.mask)).max()) < pattern.limit


def first_nonfinite(path: Path, header: FileHeader) -> str:
    """Name of a tensor of the file that holds NaN or infinity, or empty if all are finite."""
    with FileIO(path) as file:
        for name, slot in header.slots.items():
            if not all(all_finite(slot.meta.dtype, chunk) for chunk in read_chunks(file, slot)):
                return name
    return ""
