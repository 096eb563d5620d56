"""Digests depend on bytes, names, dtypes and shapes, and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from live_eval.digests import tensor_digest, version_digest

A = ("a", "float32", (2, 3), tensor_digest(b"a"))
B = ("b", "float32", (6,), tensor_digest(b"b"))


def test_a_tensor_digest_is_xxh3_128_of_the_raw_bytes() -> None:
    data = np.arange(100, dtype=np.float32).reshape(10, 10)
    assert tensor_digest(data) == xxhash.xxh3_128_hexdigest(data.tobytes())
    assert tensor_digest(memoryview(data.tobytes())) == tensor_digest(data)


def test_an_empty_tensor_has_the_digest_of_no_bytes() -> None:
    assert tensor_digest(np.empty((0, 4), dtype=np.float16)) == tensor_digest(b"")


def test_a_buffer_that_is_not_contiguous_is_refused() -> None:
    with pytest.raises(ValueError, match="contiguous"):
        tensor_digest(np.zeros((4, 4)).T[1:])


@given(st.permutations(range(2)))
def test_a_version_digest_does_not_depend_on_order(order: list[int]) -> None:
    entries = [A, B]
    assert version_digest(entries[i] for i in order) == version_digest(entries)


@pytest.mark.parametrize(
    "other",
    [
        ("x", "float32", (2, 3), A[3]),
        ("a", "int32", (2, 3), A[3]),
        ("a", "float32", (3, 2), A[3]),
        ("a", "float32", (2, 3), B[3]),
    ],
)
def test_a_version_digest_depends_on_name_dtype_shape_and_bytes(
    other: tuple[str, str, tuple[int, ...], str],
) -> None:
    assert version_digest([other, B]) != version_digest([A, B])


def test_names_cannot_run_into_each_other() -> None:
    one = [('a", "float32', "int8", (1,), "0")]
    two = [("a", 'float32", "int8', (1,), "0")]
    assert version_digest(one) != version_digest(two)
