from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_eval.evaluation.metrics import compute_metrics, count_samples, pass_at_k, with_data
from live_eval.evaluation.sample import Sample


def sample(row_id: str, number: int = 0, reward: float | None = 1.0, **changes: Any) -> Sample:
    values: dict[str, Any] = {
        "dataset": "set",
        "row_id": row_id,
        "sample": number,
        "attempt": 1,
        "prompt": "p",
        "label": "l",
        "response": "r",
        "reward": reward,
        "status": "scored" if reward is not None else "errored",
        "finish_reason": "stop",
        "num_tokens": 4,
    }
    return Sample(**{**values, **changes})


def brute_force_pass_at_k(passed: list[bool], k: int) -> float:
    draws = list(itertools.combinations(passed, k))
    return sum(any(draw) for draw in draws) / len(draws)


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.data())
def test_pass_at_k_is_the_share_of_all_draws_that_pass(passed: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(passed)))
    assert pass_at_k(len(passed), sum(passed), k) == pytest.approx(
        brute_force_pass_at_k(passed, k), abs=1e-12
    )


def test_pass_at_k_of_large_groups_neither_overflows_nor_leaves_0_to_1() -> None:
    for passed in (0, 1, 500, 9_999, 10_000):
        assert 0.0 <= pass_at_k(10_000, passed, 4_096) <= 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(2, 1, 3), (2, 1, 0), (2, 3, 1), (2, -1, 1)])
def test_pass_at_k_refuses_what_has_no_meaning(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(n, c, k)


ragged = st.lists(
    st.lists(st.sampled_from([0.0, 0.25, 1.0, 2.0, None, "aborted"]), min_size=0, max_size=6), max_size=6
)


@given(ragged, st.integers(1, 6), st.randoms(use_true_random=False))
def test_metrics_of_ragged_groups_agree_with_a_count_by_hand(
    rows: list[list[Any]], n: int, rng: random.Random
) -> None:
    rows = [row[:n] for row in rows]
    samples = []
    for row_id, rewards in enumerate(rows):
        for number, reward in enumerate(rewards):
            status = "aborted" if reward == "aborted" else "errored" if reward is None else "scored"
            value = reward if isinstance(reward, float) else None
            samples.append(sample(str(row_id), number, value, status=status))
    rng.shuffle(samples)
    metrics = compute_metrics(samples, n=n)

    flat = [r for row in rows for r in row if isinstance(r, float)]
    complete = [row for row in rows if len(row) == n and all(isinstance(r, float) for r in row)]
    assert metrics["score"] == (pytest.approx(sum(flat) / len(flat)) if flat else None)
    ks = [k for k in (1, 2, 4) if k <= n]
    assert [name for name in metrics if name.startswith("pass@")] == [f"pass@{k}" for k in ks]
    for k in ks:
        by_hand = [brute_force_pass_at_k([r >= 1.0 for r in row], k) for row in complete]
        expected = pytest.approx(sum(by_hand) / len(by_hand)) if by_hand else None
        assert metrics[f"pass@{k}"] == expected
    means = [sum(row) / n for row in complete]
    assert metrics[f"avg@{n}"] == (pytest.approx(sum(means) / len(means)) if means else None)
    assert metrics[f"avg@{n}/rows"] == (len(complete) or None), "over how many rows it is"


def test_no_samples_mean_no_data_and_not_zero() -> None:
    metrics = compute_metrics([], n=2)
    names = {"score", "avg@2", "avg@2/rows", "pass@1", "pass@2", "truncated", "response_tokens"}
    assert set(metrics) == names
    assert all(value is None for value in metrics.values())
    assert with_data(metrics) == {}


def test_all_samples_errored_mean_no_score() -> None:
    metrics = compute_metrics([sample("a", 0, None), sample("b", 0, None)], n=1)
    assert metrics["score"] is None
    assert metrics["response_tokens"] == 4.0


def test_an_error_is_left_out_of_the_mean_and_counted() -> None:
    samples = [sample("a", reward=1.0), sample("b", reward=None), sample("c", reward=0.0)]
    assert compute_metrics(samples, n=1)["score"] == 0.5
    counts = count_samples(samples, n_expected=5)
    assert (counts.n_expected, counts.n_scored, counts.n_errored, counts.n_aborted) == (5, 2, 1, 2)
    assert counts.coverage == 0.4
    assert count_samples([], n_expected=0).coverage is None


def test_truncated_and_tokens_are_over_answers_whether_or_not_they_have_a_reward() -> None:
    samples = [
        sample("a", num_tokens=2),
        sample("b", reward=None, finish_reason="length", num_tokens=8),
        sample("c", reward=None, finish_reason="", num_tokens=0),
        sample("d", reward=None, status="aborted", finish_reason="abort", num_tokens=100),
    ]
    metrics = compute_metrics(samples, n=1)
    assert (metrics["truncated"], metrics["response_tokens"]) == (0.5, 5.0)


def test_a_sparse_reward_key_reports_its_own_n_and_shifts_nothing() -> None:
    samples = [
        sample("a", reward=1.0, rewards={"acc": 1.0, "fmt": 0.5}),
        sample("b", reward=0.0, rewards={"acc": 0.0}),
    ]
    metrics = compute_metrics(samples, n=1)
    assert (metrics["score"], metrics["pass@1"]) == (0.5, 0.5)
    assert (metrics["reward/acc"], metrics["reward/acc/n"]) == (0.5, 2.0)
    assert (metrics["reward/fmt"], metrics["reward/fmt/n"]) == (0.5, 1.0)


def test_the_threshold_decides_what_passes() -> None:
    samples = [sample("a", reward=0.5), sample("b", reward=0.4)]
    assert compute_metrics(samples, n=1)["pass@1"] == 0.0
    assert compute_metrics(samples, n=1, pass_threshold=0.5)["pass@1"] == 0.5


def test_rows_of_one_id_in_two_datasets_are_two_groups() -> None:
    samples = [sample("a", 0), sample("a", 0, 0.0, dataset="other")]
    assert compute_metrics(samples, n=1)["avg@1"] == 0.5


def test_the_same_sample_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="set/a/0 is there twice"):
        compute_metrics([sample("a"), sample("a")], n=1)


# --- intervals and lengths --------------------------------------------------------------


@given(st.lists(st.integers(0, 500), min_size=1, max_size=40))
def test_lengths_are_mean_median_the_95th_percentile_and_the_longest(lengths: list[int]) -> None:
    metrics = compute_metrics([sample(str(i), num_tokens=n) for i, n in enumerate(lengths)], n=1)
    ordered = sorted(lengths)
    assert metrics["response_tokens"] == pytest.approx(sum(lengths) / len(lengths))
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    assert metrics["response_tokens/median"] == middle
    p95, longest = metrics["response_tokens/p95"], metrics["response_tokens/max"]
    assert sum(length <= p95 for length in lengths) >= 0.95 * len(lengths)
    assert sum(length < p95 for length in lengths) < 0.95 * len(lengths)
    assert longest == ordered[-1]


def test_the_interval_is_clustered_by_row_whatever_the_order() -> None:
    samples = [sample(f"r{i}", j, float(i % 2)) for i in range(20) for j in range(4)]
    random.Random(1).shuffle(samples)
    metrics = compute_metrics(samples, n=4)
    alone = compute_metrics([sample(f"r{i}", 0, float(i % 2)) for i in range(20)], n=1)
    assert metrics["score"] == alone["score"] == 0.5
    wide, narrow = (found["score/high"] - found["score/low"] for found in (metrics, alone))  # type: ignore[operator]
    assert wide == pytest.approx(narrow, rel=0.1), "four equal samples of a row say what one says"
    assert metrics["score/n_eff"] is not None and metrics["score/n_eff"] < 20


def test_rewards_beyond_0_and_1_have_an_interval_of_another_kind() -> None:
    metrics = compute_metrics([sample(f"r{i}", 0, i / 2) for i in range(5)], n=1)
    assert metrics["score"] == 1.0
    half = 2.7764 * (0.625 / 5) ** 0.5
    assert (metrics["score/low"], metrics["score/high"]) == pytest.approx((1 - half, 1 + half), abs=1e-3)
    assert metrics["score/n_eff"] is None
    one = compute_metrics([sample("r", 0, 0.5)], n=1)
    assert (one["score"], one["score/low"]) == (0.5, None)
