"""The element types that a sync may carry: their wire name, safetensors name and size.

The wire name is torch's own name without the `torch.` prefix, because every publisher
and every engine of the field has that name at hand.
"""

from __future__ import annotations

from typing import NamedTuple


class DType(NamedTuple):
    """One element type."""

    name: str
    """Wire name, for example `bfloat16`."""
    safetensors: str
    """Name in a safetensors header, for example `BF16`."""
    num_bytes: int
    """Bytes of one element."""


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("float64", "F64", 8),
        DType("float32", "F32", 4),
        DType("float16", "F16", 2),
        DType("bfloat16", "BF16", 2),
        DType("float8_e4m3fn", "F8_E4M3", 1),
        DType("float8_e5m2", "F8_E5M2", 1),
        DType("float8_e8m0fnu", "F8_E8M0", 1),
        DType("int64", "I64", 8),
        DType("int32", "I32", 4),
        DType("int16", "I16", 2),
        DType("int8", "I8", 1),
        DType("uint64", "U64", 8),
        DType("uint32", "U32", 4),
        DType("uint16", "U16", 2),
        DType("uint8", "U8", 1),
        DType("bool", "BOOL", 1),
    )
}

BY_SAFETENSORS: dict[str, DType] = {d.safetensors: d for d in DTYPES.values()}
