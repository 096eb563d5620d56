"""NaN and infinity are found in every float dtype, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fakes.checkpoints import finite_bytes

from live_eval.store.finite import all_finite, first_nonfinite
from live_eval.tensor_files import CHUNK_BYTES, build_header, read_header
from protocol.dtypes import DTYPES
from protocol.messages import TensorMeta

# dtype -> bit patterns (little endian) that are not finite, and the largest finite ones.
BAD = {
    "float64": [0x7FF8 << 48, 0x7FF0 << 48, 0xFFF0 << 48],
    "float32": [0x7FC00000, 0x7F800000, 0xFF800000],
    "float16": [0x7E00, 0x7C00, 0xFC00],
    "bfloat16": [0x7FC0, 0x7F80, 0xFF80],
    "float8_e4m3fn": [0x7F, 0xFF],
    "float8_e5m2": [0x7C, 0x7D, 0xFC],
    "float8_e8m0fnu": [0xFF],
}
LARGEST = {
    "float64": 0xFFEF_FFFF_FFFF_FFFF,
    "float32": 0xFF7F_FFFF,
    "float16": 0xFBFF,
    "bfloat16": 0xFF7F,
    "float8_e4m3fn": 0xFE,
    "float8_e5m2": 0xFB,
    "float8_e8m0fnu": 0xFE,
}


def element(dtype: str, bits: int) -> bytes:
    return bits.to_bytes(DTYPES[dtype].num_bytes, "little")


@pytest.mark.parametrize(("dtype", "bits"), [(dtype, bits) for dtype in BAD for bits in BAD[dtype]])
def test_one_bad_element_is_found(dtype: str, bits: int) -> None:
    data = element(dtype, 0) * 7 + element(dtype, bits) + element(dtype, 0) * 7
    assert not all_finite(dtype, np.frombuffer(data, dtype=np.uint8))


@pytest.mark.parametrize("dtype", LARGEST)
def test_the_largest_finite_element_is_finite(dtype: str) -> None:
    assert all_finite(dtype, np.frombuffer(element(dtype, LARGEST[dtype]), dtype=np.uint8))


@pytest.mark.parametrize("dtype", DTYPES.keys() - BAD.keys())
def test_integers_are_finite_whatever_their_bits(dtype: str) -> None:
    assert all_finite(dtype, np.full(16, 0xFF, dtype=np.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_empty_tensor_is_finite(dtype: str) -> None:
    assert all_finite(dtype, np.empty(0, dtype=np.uint8))


def test_a_bad_element_in_a_late_chunk_is_found_by_name(tmp_path: Path) -> None:
    big = TensorMeta("big", "bfloat16", (CHUNK_BYTES,))  # two chunks
    header, _ = build_header([big])
    data = bytearray(finite_bytes(big, 0))
    path = tmp_path / "x.safetensors"
    path.write_bytes(header + data)
    assert first_nonfinite(path, read_header(path)) == ""
    data[-2:] = element("bfloat16", 0x7FC0)
    path.write_bytes(header + data)
    assert first_nonfinite(path, read_header(path)) == "big"
