from __future__ import annotations

import pytest
from fakes.eval_shell import EvalShell

from live_eval.errors import ConfigError


def test_a_checkpoint_is_evaluated_on_the_datasets_asked_for() -> None:
    shell = EvalShell(datasets=("a", "b"))
    shell.submit(1, "b")
    shell.submit(2)
    assert shell.scheduler.running == ("c1/b",)
    assert shell.scheduler.waiting == ("c2/a", "c2/b")


def test_an_unknown_dataset_is_refused_and_makes_no_job() -> None:
    shell = EvalShell(datasets=("a",))
    with pytest.raises(ConfigError, match=r"no dataset x; configured are: a"):
        shell.submit(1, "a", "x")
    assert shell.scheduler.running == ()


def test_a_checkpoint_submitted_twice_under_one_number_is_one_evaluation() -> None:
    shell = EvalShell()
    shell.submit(1)
    assert shell.submit(1) == []


def test_a_running_checkpoint_is_not_cancelled_for_a_newer_version() -> None:
    shell = EvalShell(on_update="cancel")
    shell.submit(1)
    shell.seal(1)
    shell.seal(2)
    assert shell.told_to_stop == []
    shell.complete_all()
    assert shell.ran == ["c1", "v2"]
    assert shell.ends["v1/a"] == "superseded: newer_version"


def test_a_live_version_goes_before_a_checkpoint_when_both_wait_at_first() -> None:
    shell = EvalShell()
    shell.submit(1)
    shell.submit(2)
    shell.seal(1)
    shell.complete_all()
    assert shell.ran == ["c1", "v1", "c2"]


def test_live_versions_and_checkpoints_take_turns() -> None:
    shell = EvalShell(on_update="queue")
    shell.seal(1)
    for number in (1, 2, 3):
        shell.submit(number)
    for version in (2, 3):
        shell.seal(version)
    shell.complete_all()
    assert shell.ran == ["v1", "c1", "v2", "c2", "v3", "c3"]


def test_of_waiting_checkpoints_the_highest_priority_is_next_and_equal_ones_in_the_order_of_asking() -> None:
    shell = EvalShell()
    shell.submit(1, priority=-5)
    for number, priority in ((2, 0), (3, 7), (4, 0), (5, 7), (6, -1)):
        shell.submit(number, priority=priority)
    shell.complete_all()
    assert shell.ran == ["c1", "c3", "c5", "c2", "c4", "c6"]


def test_a_priority_takes_no_turn_from_a_live_version_and_stops_nothing() -> None:
    shell = EvalShell(on_update="queue")
    shell.seal(1)
    shell.submit(1, priority=100)
    shell.submit(2, priority=100)
    shell.seal(2)
    assert shell.told_to_stop == []
    shell.complete_all()
    assert shell.ran == ["v1", "c1", "v2", "c2"]


def test_a_stream_of_versions_does_not_starve_a_checkpoint() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.submit(1)
    shell.seal(2)
    shell.complete()
    assert shell.running == "c1"
    shell.seal(3)
    shell.complete()
    assert shell.running == "v3"


def test_a_version_that_cancelled_another_goes_before_a_waiting_checkpoint() -> None:
    shell = EvalShell(on_update="cancel")
    shell.seal(1)
    shell.submit(1)
    shell.seal(2)
    shell.complete_all()
    assert shell.ran == ["v1", "v2", "c1"]


def test_cancels_do_not_starve_a_checkpoint_thanks_to_the_guard() -> None:
    shell = EvalShell(on_update="cancel", max_consecutive_cancels=2)
    shell.seal(1)
    shell.submit(1)
    for version in (2, 3, 4):
        shell.seal(version)
        shell.complete()
    assert shell.ran == ["v1", "v2", "v3", "c1"]


def test_a_checkpoint_is_never_pinned() -> None:
    shell = EvalShell()
    shell.submit(1)
    assert shell.scheduler.pins == frozenset()
