"""slime's reward rules: right, wrong, and what cannot be told."""

from __future__ import annotations

import time
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from math_verify import parse, verify

from live_eval.evaluation.rewards import RewardSample
from live_eval.evaluation.rules import grade, mathematics
from live_eval.evaluation.rules.boxed import last_boxed
from live_eval.evaluation.rules.choices import multiple_choice
from live_eval.evaluation.rules.dapo import answer_line
from live_eval.evaluation.rules.mathematics import answer_after_thinking, boxed_answer, same_value
from live_eval.evaluation.rules.words import f1


def sample(response: str, label: Any, **changes: Any) -> RewardSample:
    values: dict[str, Any] = {
        "dataset": "a", "row_id": "r", "sample": 0, "prompt": "p", "response": response, "label": label,
    }  # fmt: skip
    return RewardSample(**{**values, **changes})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{72}", "72"),
        (r"\boxed{1}, no: \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{1} and \boxed{2", "1"),
        (r"\fbox{3}", "3"),
        ("72", None),
        ("", None),
    ],
)
def test_the_last_whole_box_counts(text: str, expected: str | None) -> None:
    assert last_boxed(text) == expected


SAME = [
    ("72", "72.0"),
    ("1/2", r"\frac{1}{2}"),
    ("1/3", r"\frac13"),
    ("1/3", r"\dfrac{1}{3}"),
    ("1/3", r"\left( \frac{1}{3} \right)"),
    ("1/3", r"\frac{1}{3} \text{meters}"),
    ("1/3", r"k = \frac{1}{3}"),
    ("7425000", "7,425,000"),
    (r"28\%", "28\\%"),
    (r"\sqrt{3}", r"\sqrt3"),
    (r"\{1,3\} \cup \{2,4\}", r"\{1,2,3,4\}"),
    ("[0,1)", "[0,1)"),
    ("x^2+2x+1", "(x+1)^2"),
    (r"\begin{pmatrix} 0 & 3 \\ 0 & -1 \end{pmatrix}", r"\begin{pmatrix}0&3\\0&-1\end{pmatrix}"),
    (r"90^\circ", "90"),
]
DIFFERENT = [("72", "73"), ("[0,9)", "[0,1)"), ("(0,9)", "[0,9)"), ("28", "28/100"), ("x+1", "x-1")]


@pytest.mark.parametrize(
    ("truth", "answer", "same"), [(*each, True) for each in SAME] + [(*each, False) for each in DIFFERENT]
)
def test_values_are_compared_as_the_library_compares_them(truth: str, answer: str, same: bool) -> None:
    assert verify(parse(f"${truth}$"), parse(f"${answer}$")) is same, "the library's own answer"
    assert same_value(answer, truth) is same
    assert boxed_answer(rf"It is $\boxed{{{answer}}}$.", truth) == float(same)
    assert boxed_answer(rf"\boxed{{{answer}}}", rf"\boxed{{{truth}}}") == float(same)


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        (r"\boxed{72}", 72, 1.0),
        (r"\boxed{0.5}", 0.5, 1.0),
        ("72", 72, 0.0),
        (r"\boxed{}", 72, 0.0),
        (r"\boxed{\frac{}", 72, 0.0),
        (r"\boxed{East}", "East", 1.0),
        (r"\boxed{West}", "East", 0.0),
        (r"\boxed{((((}", "72", 0.0),
    ],
)
def test_math_wants_a_box(response: str, label: Any, reward: float) -> None:
    assert boxed_answer(response, label) == reward


def test_in_another_thread_a_right_answer_is_right_too() -> None:
    """The library's time limits are signals, which only a main thread may set."""
    with ThreadPoolExecutor(1) as threads:
        found = threads.map(lambda pair: same_value(*pair), [(r"\frac{1}{2}", "0.5"), ("73", "72")])
        assert list(found) == [True, False]


@pytest.mark.parametrize("step", ["parser.extract_target_from_pred", "grader.sympy_expr_eq"])
def test_a_time_limit_that_runs_out_is_an_error_and_no_wrong_answer(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(f"math_verify.{step}", lambda *_, **__: time.sleep(60))
    monkeypatch.setattr(mathematics, "LIMIT_S", 1)
    with pytest.raises(TimeoutError, match="'73' could not be compared with '72' in time"):
        same_value("73", "72")


def test_deepscaler_looks_behind_the_thinking_only() -> None:
    assert answer_after_thinking(r"<think>\boxed{1}</think> \boxed{2}", "2") == 1.0
    assert answer_after_thinking(r"<think>\boxed{2}</think> nothing", "2") == 0.0
    assert answer_after_thinking(r"\boxed{2}", "2") == 0.0
    assert answer_after_thinking(r"###Response \boxed{2}", "2") == 1.0


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("Answer: 34", True),
        ("Answer: $34$", True),
        (r"Answer: \boxed{34}", True),
        ("answer: x = 34.", True),
        ("Answer: 3,400\nAnswer: 34", True),
        (r"**Answer: \text{34}**", True),
        ("Answer: 34 dollars", True),
        ("Answer: 34.5", False),
        ("Answer: 34 or 35", False),
        ("Answer: thirty-four", False),
        ("34", False),
        ("Answer: 34" + "." * 400, False),
        ("", False),
    ],
)
def test_dapo_wants_a_line_with_a_whole_number_near_the_end(response: str, right: bool) -> None:
    assert answer_line(response, "34") == {"score": 1.0 if right else -1.0, "acc": float(right)}


def test_dapo_cannot_tell_without_a_whole_number() -> None:
    for label in ("34.5", "east"):
        with pytest.raises(ValueError, match=r"34\.5|east"):
            answer_line("Answer: 34", label)


@pytest.mark.parametrize(
    ("response", "label", "reward"),
    [
        ("The Eiffel Tower!", "eiffel tower", 1.0),
        ("in Paris, France", "Paris", 0.5),
        ("yes", "yes", 1.0),
        ("yes it is", "yes", 0.0),
        ("no", "yes", 0.0),
        ("x x y", "x y y", 2 / 3),
        ("", "Paris", 0.0),
        ("1984", 1984, 1.0),
    ],
)
def test_f1_counts_words(response: str, label: Any, reward: float) -> None:
    assert f1(response, label) == pytest.approx(reward)


CHOICES = {"choices": ["red", "green", "blue", "dark red"]}


@pytest.mark.parametrize(
    ("response", "label", "metadata", "reward"),
    [
        ("The answer is B.", "B", {}, 1.0),
        ("I think A, but the correct answer is (C)", "C", {}, 1.0),
        (r"\boxed{D}", "D", CHOICES, 1.0),
        ("<think>answer: A</think> Answer: B", "B", {}, 1.0),
        ("Option B is wrong. Answer: A", "B", {}, 0.0),
        ("Answer: C", 2, CHOICES, 1.0),
        ("Answer: C", "blue", CHOICES, 1.0),
        ("It must be blue", "blue", CHOICES, 1.0),
        ("It must be bluer", "blue", CHOICES, 0.0),
        ("Answer: D", "", {"correct_letter": "d"}, 1.0),
        ("Answer: Z", "A", {}, 0.0),
        ("", "A", {}, 0.0),
    ],
)
def test_a_choice_is_a_letter_or_its_text(
    response: str, label: Any, metadata: dict[str, Any], reward: float
) -> None:
    assert multiple_choice(response, label, metadata) == reward


def test_a_choice_without_a_right_one_cannot_be_told() -> None:
    with pytest.raises(ValueError, match="names no choice"):
        multiple_choice("Answer: A", None, {})


async def test_rules_are_found_by_name_and_boxed_goes_before_any() -> None:
    async def by(rule: str, response: str, label: Any) -> Any:
        return await grade(Namespace(rm_type=rule, rm_url=None, deadline_s=1.0), sample(response, label))

    assert await by("math", r"\boxed{1/2}", "0.5") == 1.0
    assert await by("boxed_f1", r"a lot of words \boxed{Paris}", "Paris") == 1.0
    assert await by("boxed_f1", "Paris", "Paris") == 0.0
    assert (await by("dapo", "Answer: 3", 3))["acc"] == 1.0
    assert await by("gpqa", "Answer: B", "B") == 1.0
    assert await by("random", "", None) == await by("random", "", None)
    with pytest.raises(ValueError, match="no rule 'nope'"):
        await by("nope", "", None)
