"""Fingerprints: fixed tokens, tolerance by dtype, and a book that never changes an entry."""

from __future__ import annotations

import math

import pytest

from live_eval.engines.fingerprint import (
    NUM_TOKENS,
    FingerprintBook,
    distance,
    is_finite,
    token_ids,
    tolerance,
)
from live_eval.errors import ConfigError


def test_tokens_depend_on_the_vocabulary_alone() -> None:
    assert token_ids(512) == token_ids(512)
    assert len(token_ids(512)) == NUM_TOKENS
    assert all(3 <= token < 460 for token in token_ids(512))
    assert token_ids(512) != token_ids(151_936)
    with pytest.raises(ConfigError, match="too small"):
        token_ids(10)


def test_float32_is_compared_more_tightly_than_half_precision() -> None:
    assert tolerance("float32") < tolerance("bfloat16") == tolerance("float16")
    assert tolerance("fp8-something") == tolerance("bfloat16")


def test_distance_is_the_largest_difference() -> None:
    assert distance((0.0, -1.0), (0.5, -3.0)) == 2.0
    assert distance((1.0,), (1.0,)) == 0.0


@pytest.mark.parametrize("bad", [(math.nan, 1.0), (math.inf, 1.0), (), (1.0,)])
def test_what_is_no_fingerprint_is_infinitely_far_from_everything(bad: tuple[float, ...]) -> None:
    assert distance(bad, (1.0, 1.0)) == math.inf
    assert distance(bad, bad) == math.inf or is_finite(bad)


def test_the_book_keeps_the_first_entry_and_tells_its_keeper() -> None:
    kept: dict[str, tuple[float, ...]] = {}
    book = FingerprintBook(on_add=kept.__setitem__)
    book.add("d1", "sglang-1/float32/cpu/tp1", (1.0,))
    book.add("d1", "sglang-1/float32/cpu/tp1", (2.0,))
    book.add("d1", "sglang-1/bfloat16/cpu/tp1", (3.0,))
    assert book.get("d1", "sglang-1/float32/cpu/tp1") == (1.0,)
    assert book.get("d1", "sglang-1/bfloat16/cpu/tp1") == (3.0,)
    assert book.get("d2", "sglang-1/float32/cpu/tp1") is None
    assert kept == book.entries()
    assert FingerprintBook(kept).get("d1", "sglang-1/float32/cpu/tp1") == (1.0,)


def test_a_target_without_digest_is_not_in_the_book() -> None:
    book = FingerprintBook()
    book.add("", "f", (1.0,))
    assert book.entries() == {}
    assert book.get("", "f") is None
