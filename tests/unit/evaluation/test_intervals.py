"""Intervals against an independent computation, tables, and what they promise: 95 of 100 hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from live_eval.evaluation.intervals import Estimate, Z, estimate_difference, estimate_mean, student_t

RAGGED = st.lists(st.lists(st.floats(-3, 3), max_size=5), min_size=1, max_size=12)
BINARY = st.lists(st.lists(st.sampled_from([0.0, 1.0]), max_size=5), min_size=1, max_size=12)


def t_by_integration(degrees: int) -> float:
    """The 97.5 % quantile from the density alone."""
    grid = np.linspace(0.0, 60.0, 600_001)
    density = (1 + grid**2 / degrees) ** (-(degrees + 1) / 2)
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(degrees * math.pi)
    half = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)]) * (grid[1] - grid[0]) * scale
    return float(np.interp(0.475, half, grid))


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 17, 59, 60, 61, 500])
def test_students_t_is_that_of_its_density(degrees: int) -> None:
    assert student_t(degrees) == pytest.approx(t_by_integration(degrees), abs=2e-6)


def test_students_t_is_that_of_the_tables() -> None:
    table = {1: 12.706, 2: 4.303, 3: 3.182, 9: 2.262, 29: 2.045, 120: 1.980}
    assert {degrees: round(student_t(degrees), 3) for degrees in table} == table
    with pytest.raises(ValueError, match="one or more"):
        student_t(0)


def cluster_se(groups: list[list[float]]) -> tuple[float, float]:
    """Mean and its clustered standard error as a regression on a constant with robust clusters has them."""
    rewards = np.array([reward for group in groups for reward in group])
    owner = np.array([number for number, group in enumerate(groups) for _ in group])
    residuals = rewards - rewards.mean()
    meat = sum(residuals[owner == number].sum() ** 2 for number in set(owner))
    count = len(set(owner))
    return float(rewards.mean()), float(math.sqrt(meat * count / (count - 1)) / len(rewards))


@settings(max_examples=150, deadline=None)
@given(RAGGED)
def test_means_of_ragged_rewards_are_those_of_the_cluster_robust_formula(groups: list[list[float]]) -> None:
    found = estimate_mean(groups)
    full = [group for group in groups if group]
    if not full:
        assert found is None
        return
    assert found is not None
    assert found.mean == pytest.approx(np.mean([reward for group in full for reward in group]), abs=1e-9)
    if found.method == "wilson":
        return
    if len(full) == 1:
        assert (found.low, found.high, found.se) == (None, None, None)
        return
    mean, se = cluster_se(full)
    if found.low is None:
        assert se < 1e-9, "all prompts say the same"
        return
    half = t_table(len(full) - 1) * se
    assert (found.low, found.high) == pytest.approx((mean - half, mean + half), abs=1e-5)


TABLE = {degrees: t_by_integration(degrees) for degrees in range(1, 12)}


def t_table(degrees: int) -> float:
    return TABLE[degrees]


@settings(max_examples=150, deadline=None)
@given(BINARY)
def test_shares_are_wilsons_interval_on_the_effective_number(groups: list[list[float]]) -> None:
    found = estimate_mean(groups)
    full = [group for group in groups if group]
    if not full:
        assert found is None
        return
    assert found is not None and found.low is not None and found.high is not None and found.effective
    assert found.method == "wilson"
    assert 0.0 <= found.low <= found.mean <= found.high <= 1.0
    assert 0.0 < found.effective <= sum(map(len, full))
    # Wilson's bounds are the shares from which the mean is Z standard errors away.
    for bound in {found.low, found.high} - {0.0, 1.0, found.mean}:
        distance = abs(found.mean - bound) / math.sqrt(bound * (1 - bound) / found.effective)
        assert distance == pytest.approx(Z, rel=1e-6)


def test_wilson_without_clusters_is_the_published_one() -> None:
    # 15 of 148, as in Newcombe 1998, table I, method 3: 0.0624 to 0.1605.
    found = estimate_mean([[1.0]] * 15 + [[0.0]] * 133)
    assert found is not None
    assert (round(found.low or 0, 4), round(found.high or 0, 4)) == (0.0624, 0.1605)
    assert found.effective == 148


def test_equal_rewards_are_no_certainty() -> None:
    found = estimate_mean([[1.0] * 4] * 10)
    assert found is not None
    assert (found.mean, found.high, found.effective) == (1.0, 1.0, 10)
    assert found.low == pytest.approx(0.7225, abs=1e-4)


def test_samples_that_repeat_their_prompt_say_no_more_than_prompts() -> None:
    alone = estimate_mean([[1.0], [0.0]] * 20)
    repeated = estimate_mean([[1.0] * 8, [0.0] * 8] * 20)
    independent = estimate_mean([[1.0, 0.0] * 4] * 40)
    assert alone and repeated and independent
    assert repeated.effective == pytest.approx(alone.effective, rel=0.1)
    assert width(independent) < width(repeated) / 2


def width(found: Estimate) -> float:
    assert found.low is not None and found.high is not None
    return found.high - found.low


@pytest.mark.parametrize(("num_prompts", "n"), [(8, 4), (40, 1), (40, 8)])
def test_intervals_hold_the_truth_95_times_in_100(num_prompts: int, n: int) -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(400):
        shares = rng.beta(0.8, 1.2, num_prompts)
        found = estimate_mean([list((rng.random(n) < share).astype(float)) for share in shares])
        assert found and found.low is not None and found.high is not None
        held += found.low <= 0.4 <= found.high
    assert held / 400 > 0.92


# --- differences ------------------------------------------------------------------------


def test_a_difference_of_shares_is_bonett_and_prices() -> None:
    # 59 pairs: 14 got better, 5 got worse.
    found = estimate_difference([1.0] * 14 + [-1.0] * 5 + [0.0] * 40, binary=True)
    better, worse, n = 15 / 61, 6 / 61, 61
    half = Z * math.sqrt((better + worse - (better - worse) ** 2) / n)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((better - worse - half, better - worse + half))
    assert found.mean == pytest.approx(9 / 59)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=2, max_size=12))
def test_other_differences_are_the_paired_t(differences: list[float]) -> None:
    assume(np.std(differences) > 1e-6)
    found = estimate_difference(differences, binary=False)
    half = t_table(len(differences) - 1) * np.std(differences, ddof=1) / math.sqrt(len(differences))
    assert found is not None
    mean = float(np.mean(differences))
    assert (found.low, found.high) == pytest.approx((mean - half, mean + half), abs=1e-5)


@pytest.mark.parametrize("rewards", [[[-1.0]] * 3, [[0.1]] * 7, [[0.2, 0.8], [0.5, 0.5]], [[1e99]] * 3])
def test_prompts_that_all_say_the_same_are_no_certainty_either(rewards: list[list[float]]) -> None:
    found = estimate_mean(rewards)
    assert found is not None and (found.low, found.high) == (None, None)
    assert found.mean == pytest.approx(np.mean(rewards))
    for equal in (0.0, 0.1, 2.0):
        same = estimate_difference([equal] * 7, binary=False)
        assert same is not None and (same.mean, same.low) == (pytest.approx(equal), None)


def test_few_prompts_or_none_give_what_can_be_known() -> None:
    assert estimate_difference([], binary=True) is None
    assert estimate_difference([0.5], binary=False) == Estimate(mean=0.5, method="paired_t", num_prompts=1)
    same = estimate_difference([0.0] * 5, binary=True)
    assert same is not None and same.low is not None and same.low < 0 < (same.high or 0)
