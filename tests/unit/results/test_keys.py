"""Rules of the names that W&B sees."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live_eval.errors import ConfigError
from live_eval.results.keys import DatasetKeys, safe_key, safe_metric


@pytest.mark.parametrize(
    ("name", "key"),
    [("rev", "rev"), ("gsm8k/test", "gsm8k_test"), ("a.b c", "a_b_c"), ("", "_"), ("\u6570", "_")],
)
def test_characters_with_a_meaning_in_a_key_are_replaced(name: str, key: str) -> None:
    assert safe_key(name) == key


def test_a_metric_keeps_its_at_sign() -> None:
    assert safe_metric("pass@1") == "pass@1"
    assert safe_metric("reward/len.x") == "reward_len_x"


@pytest.mark.parametrize("names", [("rev", "rev"), ("a/b", "a.b"), ("", "_")])
def test_two_datasets_that_would_share_a_key_are_refused(names: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="rename one of them"):
        DatasetKeys(names)


def test_a_dataset_of_an_earlier_configuration_gets_its_own_key_each_time() -> None:
    first, second = DatasetKeys(["a/b"]), DatasetKeys(["a/b"])
    assert first.key("other") == "other"
    assert first.key("a.b") == second.key("a.b") != "a_b"
    assert first.key("a/b") == "a_b"


@settings(deadline=None)
@given(st.lists(st.text(max_size=6), unique=True, max_size=8))
def test_no_two_names_ever_share_a_key(names: list[str]) -> None:
    keys = DatasetKeys([])
    mapped = [keys.key(name) for name in names]
    assert len(set(mapped)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_\-]+", key) for key in mapped)
