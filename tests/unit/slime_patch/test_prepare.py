"""The record of rows for slime's own eval function."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes.slime_standins import ByteTokenizer, Dataset

from live_eval.errors import DatasetError
from live_eval.evaluation.datasets import EvalSet
from slime_patch.datasets import DatasetPlan
from slime_patch.prepare import prepare

ROWS = [
    {"q": "one\u2028?", "a": "1", "metadata": {"level": np.int64(2)}},
    {"q": "twenty-two?", "a": np.array(["22"]), "metadata": None},
]
PLAN = DatasetPlan(name="toy", path="toy.jsonl", input_key="q", label_key="a", metadata_overrides={"x": 1})


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Dataset, "ROWS", {"toy.jsonl": ROWS, "chat.jsonl": [{"q": [{"role": "user"}], "a": ""}]}
    )


def prepared(plan: DatasetPlan, tmp_path: Path) -> EvalSet:
    target = tmp_path / "eval-0.jsonl"
    number = prepare(plan, target, tokenizer=ByteTokenizer(), dataset_class=Dataset)
    eval_set = EvalSet.load(replace(plan, rm_type="math").eval_set(target))
    assert len(eval_set.rows) == number
    return eval_set


def test_rows_carry_prompt_label_and_metadata(tmp_path: Path) -> None:
    first, second = prepared(PLAN, tmp_path).rows
    assert (first.prompt, first.label, first.fields["metadata"]) == ("one\u2028?", "1", {"level": 2, "x": 1})
    assert (second.label, second.fields["metadata"]) == (["22"], {"x": 1})


def test_the_chat_template_is_applied(tmp_path: Path) -> None:
    rows = prepared(replace(PLAN, apply_chat_template=True), tmp_path).rows
    assert rows[1].prompt == "<user>twenty-two?<assistant>"


def test_prompts_that_are_too_long_are_left_out(tmp_path: Path) -> None:
    assert len(prepared(replace(PLAN, max_prompt_tokens=8), tmp_path).rows) == 1


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"nothing is left of toy\.jsonl"):
        prepared(replace(PLAN, max_prompt_tokens=1), tmp_path)


def test_a_missing_field_or_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no field 'question'; see --eval-input-key"):
        prepared(replace(PLAN, input_key="question"), tmp_path)
    with pytest.raises(DatasetError, match="does not exist"):
        prepared(replace(PLAN, path="gone.jsonl"), tmp_path)
