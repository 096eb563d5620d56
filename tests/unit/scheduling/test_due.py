from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live_eval.scheduling.actions import Trigger
from live_eval.scheduling.due import Due, DueRule
from live_eval.targets import PolicyTarget


def version(number: int, rollout_id: int | None, *, incarnation: int = 1, weight: int = 0) -> PolicyTarget:
    return PolicyTarget(
        policy_version=number,
        incarnation=incarnation,
        weight_version=weight or number,
        rollout_id=rollout_id,
    )


def rule(interval: int | None = 5, *, skip_first: bool = False) -> DueRule:
    return DueRule(interval=interval, skip_first=skip_first)


def due_rollouts(due_rule: DueRule, *rollout_ids: int, first: int = 2) -> list[int]:
    """Rollout ids, of those given in order, whose versions are due."""
    numbered = enumerate(rollout_ids, start=first)
    return [rollout for number, rollout in numbered if due_rule.judge(version(number, rollout))]


def test_the_first_push_is_due() -> None:
    assert rule().judge(version(1, None)) == Due(trigger=Trigger.FIRST_PUSH)


def test_the_first_push_is_due_when_it_carries_a_rollout_id() -> None:
    assert rule().judge(version(1, 0)) == Due(trigger=Trigger.FIRST_PUSH)


@pytest.mark.parametrize("interval", [None, 5])
def test_the_first_push_can_be_left_out(interval: int | None) -> None:
    assert rule(interval, skip_first=True).judge(version(1, None)) is None


def test_without_an_interval_every_version_is_due() -> None:
    assert due_rollouts(rule(None), 0, 1, 5, 6) == [0, 1, 5, 6]


def test_a_version_is_due_after_every_interval_rollouts() -> None:
    assert due_rollouts(rule(5), *range(16)) == [4, 9, 14]


def test_a_skipped_due_point_is_served_by_the_next_version() -> None:
    assert due_rollouts(rule(5), 1, 3, 5, 7, 9, 11) == [5, 9]


def test_a_counter_that_never_hits_a_multiple_skips_nothing() -> None:
    # Rollouts done: 2, 6, 10, ... with an interval of 4 are multiples never.
    assert due_rollouts(rule(4), *range(1, 20, 4)) == [5, 9, 13, 17]


def test_a_version_says_which_due_point_it_serves() -> None:
    assert rule(5).judge(version(2, 6)) == Due(trigger=Trigger.INTERVAL, due_rollout=4)


def test_several_due_points_at_once_give_one_evaluation() -> None:
    due_rule = rule(2)
    assert due_rule.judge(version(2, 8)) == Due(trigger=Trigger.INTERVAL, due_rollout=7)
    assert due_rule.judge(version(3, 8)) is None


def test_two_versions_of_one_rollout_give_one_evaluation() -> None:
    assert due_rollouts(rule(5), 4, 4, 4) == [4]


def test_a_version_without_a_rollout_id_cannot_be_counted_and_is_due() -> None:
    due_rule = rule(5, skip_first=True)
    assert due_rule.judge(version(1, None)) is None
    assert due_rule.judge(version(2, None)) == Due(trigger=Trigger.UNNUMBERED)


def test_an_old_version_that_comes_late_is_not_due_and_moves_nothing() -> None:
    due_rule = rule(5)
    assert due_rule.judge(version(9, 9)) is not None
    assert due_rule.judge(version(4, 4)) is None
    assert due_rule.judge(version(10, 10)) is None
    assert due_rule.judge(version(14, 14)) is not None


def test_an_evaluation_outside_the_rule_does_not_move_the_due_points() -> None:
    due_rule = rule(5)
    due_rule.note(version(3, 2))
    assert due_rollouts(due_rule, 3, 4, first=4) == [4]


def test_a_trainer_that_resumes_where_it_was_goes_on_counting() -> None:
    due_rule = rule(5)
    assert due_rollouts(due_rule, *range(10)) == [4, 9]
    assert due_rule.judge(version(12, None, incarnation=2, weight=1)) is not None
    assert due_rule.judge(version(13, 10, incarnation=2, weight=2)) is None
    assert due_rule.judge(version(14, 14, incarnation=2, weight=3)) is not None


def test_a_trainer_that_resumes_from_an_older_checkpoint_passes_its_due_points_again() -> None:
    due_rule = rule(5)
    assert due_rollouts(due_rule, *range(20)) == [4, 9, 14, 19]
    assert due_rule.judge(version(30, None, incarnation=2, weight=1)) is not None
    assert due_rule.judge(version(31, 12, incarnation=2, weight=2)) is None
    assert due_rule.judge(version(32, 14, incarnation=2, weight=3)) is not None


def test_a_late_version_of_an_ended_incarnation_does_not_move_the_count() -> None:
    due_rule = rule(5)
    due_rule.judge(version(30, 50, incarnation=1))
    due_rule.judge(version(31, 10, incarnation=2, weight=2))
    due_rule.judge(version(29, 90, incarnation=1))
    assert due_rule.judge(version(32, 14, incarnation=2, weight=3)) is not None


@pytest.mark.parametrize(("rollout_id", "expected"), [(0, 4), (3, 4), (4, 9), (5, 9), (None, None)])
def test_the_next_due_point_is_told(rollout_id: int | None, expected: int | None) -> None:
    assert rule(5).next_due_rollout(version(2, rollout_id)) == expected


@given(steps=st.lists(st.integers(0, 9), max_size=40), interval=st.integers(1, 7))
def test_each_due_point_is_served_by_the_first_version_at_or_after_it(
    steps: list[int], interval: int
) -> None:
    rollout, ids = -1, list[int]()
    for step in steps:
        rollout = max(rollout + step, 0)
        ids.append(rollout)
    due_rule = rule(interval)
    due = [n for n, rollout in enumerate(ids) if due_rule.judge(version(n + 2, rollout))]
    points = range(interval, (ids[-1] + 1 if ids else 0) + 1, interval)
    expected = {next(n for n, rollout in enumerate(ids) if rollout + 1 >= point) for point in points}
    assert due == sorted(expected)
