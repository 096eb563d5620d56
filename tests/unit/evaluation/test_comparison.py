"""Two versions on the same prompts."""

from __future__ import annotations

import random

from live_eval.evaluation.comparison import compare, comparison_metrics, prompt_scores
from live_eval.evaluation.sample import Sample


def samples(rewards: dict[str, list[float | None]], *, prompt: str = "p") -> list[Sample]:
    """None: errored."""
    return [
        Sample(
            dataset="a", row_id=row_id, sample=number, attempt=1, prompt=f"{prompt} {row_id}", label="l",
            status="errored" if reward is None else "scored", reward=reward,
        )
        for row_id, values in rewards.items()
        for number, reward in enumerate(values)
    ]  # fmt: skip


def test_prompts_are_joined_by_what_they_are_never_by_their_place() -> None:
    before = samples({f"r{i}": [float(i % 2)] for i in range(20)})
    after = samples({f"r{i}": [float(i % 2)] for i in range(20)})
    random.Random(3).shuffle(after)
    found = compare(prompt_scores(before), prompt_scores(after))
    assert found.difference is not None
    assert (found.difference.mean, found.difference.num_prompts, found.flips) == (0.0, 20, ())
    assert not found.is_clear


def test_a_prompt_that_changed_or_was_not_scored_by_both_is_left_out() -> None:
    before = samples({"r1": [1.0], "r2": [0.0], "r3": [None]})
    after = samples({"r1": [1.0], "r3": [1.0]}) + samples({"r2": [1.0]}, prompt="another")
    found = compare(prompt_scores(before), prompt_scores(after))
    assert found.difference is not None
    assert (found.difference.num_prompts, found.difference.mean) == (1, 0.0)
    assert (found.num_before, found.num_after) == (2, 3)


def test_ragged_groups_count_each_prompt_once() -> None:
    before = samples({"r1": [1.0, 1.0, None, 0.0], "r2": [0.0]})
    after = samples({"r1": [0.0], "r2": [1.0, 0.0]})
    found = compare(prompt_scores(before), prompt_scores(after)).difference
    assert found is not None
    assert round(found.mean, 6) == round(((0 - 2 / 3) + (0.5 - 0)) / 2, 6)


def test_flips_are_prompts_passed_more_often_than_not_by_one_of_the_two() -> None:
    before = samples({"up": [0.0, 0.0], "down": [1.0, 1.0], "half": [1.0, 0.0], "same": [1.0, 1.0]})
    after = samples({"up": [1.0, 1.0], "down": [0.0, 1.0], "half": [0.0, 0.0], "same": [1.0, 1.0]})
    found = compare(prompt_scores(before), prompt_scores(after))
    assert {flip.row_id: flip.gained for flip in found.flips} == {"up": True, "down": False}


def test_a_difference_that_is_clear_says_so_in_its_metrics() -> None:
    before = samples({f"r{i}": [0.0] for i in range(30)})
    after = samples({f"r{i}": [float(i < 15)] for i in range(30)})
    found = compare(prompt_scores(before), prompt_scores(after))
    assert found.is_clear
    metrics = comparison_metrics("vs_previous", found, version=6)
    assert set(metrics) == {
        f"vs_previous/{name}" for name in ("diff", "low", "high", "prompts", "version", "gained", "lost")
    }
    assert (metrics["vs_previous/diff"], metrics["vs_previous/version"]) == (0.5, 6.0)
    assert (metrics["vs_previous/gained"], metrics["vs_previous/lost"]) == (15.0, 0.0)


def test_nothing_in_common_is_no_difference() -> None:
    found = compare(prompt_scores(samples({"a": [1.0]})), prompt_scores(samples({"b": [1.0]})))
    assert found.difference is None
    assert comparison_metrics("vs_best", found, version=1) == {}
