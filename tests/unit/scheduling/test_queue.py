from __future__ import annotations

from fakes.eval_shell import EvalShell


def queueing(**settings: object) -> EvalShell:
    return EvalShell(on_update="queue", **settings)


def test_every_due_version_runs_in_order() -> None:
    shell = queueing()
    for version in (1, 2, 3, 4):
        shell.seal(version)
    shell.complete_all()
    assert shell.ran == ["v1", "v2", "v3", "v4"]
    assert set(shell.ends.values()) == {"succeeded: completed"}


def test_versions_that_come_out_of_order_run_in_order_if_they_wait() -> None:
    shell = queueing()
    for version in (1, 4, 2, 3):
        shell.seal(version)
    shell.complete_all()
    assert shell.ran == ["v1", "v2", "v3", "v4"]


def test_past_the_bound_the_oldest_waiting_one_is_dropped() -> None:
    shell = queueing(queue_size=2)
    for version in (1, 2, 3, 4, 5):
        shell.seal(version)
    assert shell.waiting == ["v4", "v5"]
    shell.complete_all()
    assert shell.ran == ["v1", "v4", "v5"]
    assert shell.ends["v2/a"] == shell.ends["v3/a"] == "dropped: queue_full"


def test_a_queue_of_one_keeps_the_running_and_the_newest_version() -> None:
    shell = queueing(queue_size=1)
    for version in (1, 2, 3):
        shell.seal(version)
    shell.complete_all()
    assert shell.ran == ["v1", "v3"]


def test_checkpoints_take_no_place_in_the_bound() -> None:
    shell = queueing(queue_size=1)
    shell.seal(1)
    shell.submit(1)
    shell.submit(2)
    shell.seal(2)
    assert shell.ends == {}


def test_a_question_during_a_sync_waits_for_the_version_of_that_sync() -> None:
    shell = queueing(interval=9)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=0)
    shell.take(shell.scheduler.sync_began(3, now=0))
    assert shell.take(shell.scheduler.evaluate_latest(now=0)) == []
    shell.seal(3, rollout_id=1)
    assert shell.running == "v3"
    assert shell.triggers["v3"] == "asked"
    assert "v2" not in shell.triggers


def test_a_question_during_a_sync_that_is_discarded_gets_the_stable_version() -> None:
    shell = queueing(interval=9)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=0)
    shell.take(shell.scheduler.sync_began(3, now=0))
    shell.take(shell.scheduler.evaluate_latest(now=0))
    shell.take(shell.scheduler.sync_ended(3, now=0))
    assert shell.running == "v2"


def test_under_finish_a_question_takes_the_stable_version_at_once() -> None:
    shell = EvalShell(interval=9)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=0)
    shell.take(shell.scheduler.sync_began(3, now=0))
    shell.take(shell.scheduler.evaluate_latest(now=0))
    assert shell.running == "v2"


def test_a_question_about_a_version_with_an_evaluation_changes_nothing() -> None:
    shell = queueing()
    shell.seal(1)
    shell.complete_all()
    assert shell.take(shell.scheduler.evaluate_latest(now=0)) == []


def test_a_question_before_the_first_version_waits_for_it() -> None:
    shell = queueing(skip_first=True)
    shell.take(shell.scheduler.evaluate_latest(now=0))
    shell.seal(1)
    assert shell.triggers == {"v1": "asked"}


def test_a_sync_told_after_its_version_was_sealed_is_no_sync_under_way() -> None:
    shell = queueing(interval=9)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=0)
    shell.take(shell.scheduler.sync_began(2, now=0))
    shell.take(shell.scheduler.evaluate_latest(now=0))
    assert shell.running == "v2"


def test_versions_of_an_ended_incarnation_keep_their_place() -> None:
    shell = queueing()
    shell.seal(1)
    shell.seal(2)
    shell.take(shell.scheduler.incarnation_ended(1, now=0))
    shell.seal(3, incarnation=2, weight_version=1)
    shell.complete_all()
    assert shell.ran == ["v1", "v2", "v3"]
