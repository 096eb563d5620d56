"""The built-in rules against slime's own functions, on answers that models give.

They are no copies, and differ where slime's patterns miss: of `The answer is (C)` slime takes the I of `is`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from live_eval.evaluation.rules.choices import multiple_choice
from live_eval.evaluation.rules.dapo import answer_line
from live_eval.evaluation.rules.words import f1

CHOICES = {"choices": ["red", "green", "blue", "dark red"]}


def rule(slime_dir: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, slime_dir / f"slime/rollout/rm_hub/{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("truth", ["yes", "Paris", "the Eiffel Tower", "x y y"])
def test_f1_is_slimes(slime_dir: Path, truth: str) -> None:
    theirs = rule(slime_dir, "f1").f1_score
    for answer in (
        "",
        "yes",
        "no",
        "Yes!",
        "In Paris, France",
        "eiffel tower",
        "an Eiffel, the tower.",
        "x x y",
    ):
        assert f1(answer, truth) == pytest.approx(theirs(answer, truth)[0]), answer


@pytest.mark.parametrize(
    "answer",
    [
        "Answer: 34", "Answer: $34$", r"Answer: \boxed{34}", "so x = 34\nAnswer: x = 34", "Answer: 35", "34",
        "", "Answer: 1\nAnswer: 34", r"Answer: \text{34}", "Answer: 34 dollars", "Answer: many",
    ],
)  # fmt: skip
def test_dapo_is_slimes(slime_dir: Path, answer: str) -> None:
    theirs = rule(slime_dir, "math_dapo_utils").compute_score(answer, "34")
    assert answer_line(answer, "34") == {"score": theirs["score"], "acc": float(theirs["acc"])}


@pytest.mark.parametrize(
    ("answer", "label", "metadata"),
    [
        ("The answer is B.", "B", {}),
        ("Answer: D", "A", {}),
        ("<think>answer: A</think> Answer: B", "B", {}),
        ("Answer: C", 2, CHOICES),
        ("Answer: C", "blue", CHOICES),
        ("It must be blue", "blue", CHOICES),
        ("It must be green", "blue", CHOICES),
        ("Answer: D", "", {"correct_letter": "d"}),
        ("C is correct", "C", {}),
        ("", "A", {}),
    ],
)
def test_gpqa_is_slimes(slime_dir: Path, answer: str, label: Any, metadata: dict[str, Any]) -> None:
    theirs = rule(slime_dir, "gpqa").compute_gpqa_reward(answer, label, metadata=dict(metadata))
    assert multiple_choice(answer, label, metadata) == theirs
