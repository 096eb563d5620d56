from __future__ import annotations

import pytest

from live_eval.errors import DatasetError
from live_eval.evaluation.labels import label_text


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (72, "72"),
        ("72", "72"),
        (72.0, "72"),
        (0.5, "0.5"),
        (-0.0, "0"),
        (1e22, "10000000000000000000000"),
        ("1a", "1a"),
        (True, "true"),
        (False, "false"),
        ("  two words\n", "two words"),
        ("e\u0301", "\u00e9"),
        ("72.0", "72.0"),
        ("True", "True"),
    ],
)
def test_labels_become_text_by_one_rule(label: object, text: str) -> None:
    assert label_text(label) == text


@pytest.mark.parametrize("label", [None, ["72", "72.0"], {"a": 1}, float("nan"), float("inf"), b"72"])
def test_other_kinds_have_no_text(label: object) -> None:
    with pytest.raises(DatasetError, match="cannot be matched exactly"):
        label_text(label)
