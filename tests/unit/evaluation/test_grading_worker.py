from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from live_eval.evaluation.grading_worker import load_function, to_reward


@pytest.mark.parametrize(
    ("value", "reward"),
    [
        (1, 1.0),
        (0.25, 0.25),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.int64(2), 2.0),
        (np.bool_(True), 1.0),
        (np.array(0.5), 0.5),
        ({"acc": np.float32(1), "fmt": False}, {"acc": 1.0, "fmt": 0.0}),
        ({"score": 1.0, "acc": True, "pred": "34"}, {"score": 1.0, "acc": 1.0}),
        ({"acc": 0, "pred": None, "parts": {"x": 1}}, {"acc": 0.0}),
        ({"a\ud800": 1}, {"a\\ud800": 1.0}),
    ],
)
def test_numbers_of_all_kinds_are_rewards(value: Any, reward: Any) -> None:
    converted = to_reward(value)
    assert converted == reward
    assert type(converted) in (float, dict)


@pytest.mark.parametrize("value", [None, "1", [1.0], np.array([1.0]), 1j])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="not a number"):
        to_reward(value)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), np.float32("nan"), {"acc": float("nan")}, 1e101, -1e308, 10**400]
)
def test_nan_infinity_and_what_is_beyond_any_score_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="not a score"):
        to_reward(value)


def test_a_path_must_lead_to_a_function() -> None:
    assert load_function("os.path.join")("a", "b") == "a/b"
    with pytest.raises(ModuleNotFoundError):
        load_function("no_such_module.fn")
    with pytest.raises(AttributeError):
        load_function("os.path.no_such_function")
    with pytest.raises(TypeError, match="not a function"):
        load_function("os.sep")
