from __future__ import annotations

import pytest
from fakes.eval_shell import EvalShell

from live_eval.scheduling.actions import Finished

POLICIES = ["finish", "cancel", "queue"]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_last_version_is_evaluated_though_it_is_not_due(policy: str) -> None:
    shell = EvalShell(on_update=policy, interval=10)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=0)
    shell.seal(3, rollout_id=1)
    shell.end_training()
    shell.complete_all()
    assert shell.ran == ["v1", "v3"]
    assert shell.triggers["v3"] == "last"
    shell.checker.at_the_end()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("completed", [True, False])
def test_the_last_version_is_not_evaluated_twice(policy: str, *, completed: bool) -> None:
    shell = EvalShell(on_update=policy)
    shell.seal(1)
    if completed:
        shell.complete_all()
    shell.end_training()
    shell.complete_all()
    assert shell.ran == ["v1"]
    shell.checker.at_the_end()


def test_a_skipped_first_push_is_evaluated_if_it_is_the_last_version() -> None:
    shell = EvalShell(skip_first=True)
    shell.seal(1)
    shell.end_training()
    assert shell.running == "v1"


def test_what_waits_is_drained_before_the_end() -> None:
    shell = EvalShell(on_update="queue")
    for version in (1, 2, 3):
        shell.seal(version)
    shell.submit(1)
    shell.end_training()
    assert not shell.checker.finished
    shell.complete_all()
    assert shell.ran == ["v1", "c1", "v2", "v3"]
    shell.checker.at_the_end()


def test_without_anything_to_do_the_end_is_at_once() -> None:
    shell = EvalShell()
    assert shell.end_training() == [Finished()]
    assert shell.end_training() == []


def test_the_end_waits_for_a_sync_under_way() -> None:
    shell = EvalShell(interval=10)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=0)
    shell.take(shell.scheduler.sync_began(3, now=0))
    shell.end_training()
    assert shell.running is None
    shell.seal(3, rollout_id=1)
    shell.complete_all()
    assert shell.ran == ["v1", "v3"]
    shell.checker.at_the_end()


def test_a_sync_discarded_at_the_end_leaves_the_stable_version_as_the_last() -> None:
    shell = EvalShell(interval=10)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=0)
    shell.take(shell.scheduler.sync_began(3, now=0))
    shell.end_training()
    shell.take(shell.scheduler.sync_ended(3, now=0))
    assert shell.running == "v2"


def test_a_version_sealed_after_the_end_is_the_last_one() -> None:
    shell = EvalShell(interval=10)
    shell.seal(1)
    shell.end_training()
    shell.seal(2, rollout_id=0)
    shell.complete_all()
    assert shell.ran == ["v1", "v2"]


def test_when_the_drain_runs_out_of_time_all_is_cancelled_on_the_record() -> None:
    shell = EvalShell(on_update="queue", drain_timeout_s=60)
    shell.seal(1)
    shell.seal(2)
    shell.submit(1)
    shell.start()
    shell.end_training()
    shell.pass_time(61)
    assert shell.ends == {"v2/a": "cancelled: drain_timeout", "c1/a": "cancelled: drain_timeout"}
    assert shell.told_to_stop == ["v1/a"]
    shell.complete()
    assert shell.ends["v1/a"] == "cancelled: drain_timeout"
    shell.checker.at_the_end()


def test_a_last_version_for_which_no_time_is_left_is_on_the_record() -> None:
    shell = EvalShell(interval=10, drain_timeout_s=60)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=0)
    shell.take(shell.scheduler.sync_began(3, now=0))
    shell.end_training()
    shell.pass_time(61)
    assert shell.ends["v2/a"] == "cancelled: drain_timeout"
    shell.checker.at_the_end()


def test_a_drain_without_a_limit_goes_on() -> None:
    shell = EvalShell(drain_timeout_s=None, job_timeout_s=1e9)
    shell.seal(1)
    shell.start()
    shell.end_training()
    shell.pass_time(1e6)
    assert shell.told_to_stop == []


def test_shutdown_ends_all_and_finishes_when_the_engines_are_free() -> None:
    shell = EvalShell(on_update="queue", datasets=("a", "b"))
    shell.seal(1)
    shell.seal(2)
    shell.start("v1/a")
    shell.take(shell.scheduler.shutdown(now=0))
    assert not shell.checker.finished
    shell.complete()
    assert set(shell.ends.values()) == {"cancelled: shutdown"}
    shell.checker.at_the_end()


def test_engines_that_never_come_free_do_not_hold_up_the_end() -> None:
    shell = EvalShell(abort_grace_s=5)
    shell.seal(1)
    shell.start()
    shell.take(shell.scheduler.shutdown(now=0))
    shell.pass_time(4)
    assert shell.ends == {}
    shell.pass_time(2)
    assert shell.ends == {"v1/a": "cancelled: shutdown"}
    shell.checker.at_the_end()


def test_what_comes_while_all_ends_is_ended_on_the_record() -> None:
    shell = EvalShell(interval=2)
    shell.seal(1)
    shell.take(shell.scheduler.shutdown(now=0))
    shell.seal(2, rollout_id=0)
    shell.seal(3, rollout_id=1)
    shell.submit(1)
    assert shell.checker.not_due == [2]
    assert shell.ends == {"v3/a": "cancelled: shutdown", "c1/a": "cancelled: shutdown"}


def test_after_the_end_nothing_happens() -> None:
    shell = EvalShell()
    shell.end_training()
    shell.seal(1)
    shell.submit(1)
    shell.pass_time(1)
    shell.take(shell.scheduler.evaluate_latest(now=0))
    shell.take(shell.scheduler.shutdown(now=0))
    assert shell.checker.records == {}


def test_versions_of_an_ended_incarnation_that_wait_are_superseded() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.seal(2)
    shell.take(shell.scheduler.incarnation_ended(1, now=0))
    assert shell.ends == {"v2/a": "superseded: incarnation_ended"}
    assert shell.told_to_stop == []
    shell.complete()
    assert shell.ends["v1/a"] == "succeeded: completed"


def test_a_late_version_of_an_ended_incarnation_is_superseded() -> None:
    shell = EvalShell()
    shell.take(shell.scheduler.incarnation_ended(1, now=0))
    shell.seal(1)
    assert shell.ends == {"v1/a": "superseded: incarnation_ended"}


def test_the_new_incarnation_is_evaluated_from_its_first_push() -> None:
    shell = EvalShell(interval=5)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=1)
    shell.take(shell.scheduler.incarnation_ended(1, now=0))
    shell.seal(3, incarnation=2, weight_version=1)
    assert shell.running == "v3"
    assert shell.triggers["v3"] == "first_push"


def test_the_last_version_is_evaluated_though_its_incarnation_ended() -> None:
    shell = EvalShell(interval=5)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=1)
    shell.take(shell.scheduler.incarnation_ended(1, now=0))
    shell.end_training()
    assert shell.running == "v2"
