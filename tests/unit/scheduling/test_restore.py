from __future__ import annotations

from dataclasses import replace

import pytest
from fakes.eval_shell import EvalShell, failed

from live_eval.reasons import EndReason
from live_eval.scheduling.actions import RetryJob


def reseal(shell: EvalShell, *versions: int, rollout: bool = False) -> None:
    """Report what is in the store, as the service does after its start."""
    for version in versions:
        shell.seal(version, rollout_id=version - 2 if rollout and version > 1 else None)


def test_unfinished_evaluations_go_on_in_their_old_order() -> None:
    shell = EvalShell(on_update="queue")
    for version in (1, 2, 3):
        shell.seal(version)
    shell.submit(1)
    shell.start()
    answer = shell.restart(available={1, 2, 3})
    retry = RetryJob(job_id="v1/a", evaluation="v1", attempt=2, reason=EndReason.SERVICE_RESTARTED)
    assert retry in answer
    assert shell.running == "v1"
    reseal(shell, 1, 2, 3)
    shell.complete_all()
    assert shell.ran == ["v1", "v1", "c1", "v2", "v3"]


def test_a_job_that_had_not_begun_keeps_its_attempt() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.restart(available={1})
    assert shell.in_hand == {"v1/a": 1}


def test_datasets_that_were_done_are_not_run_again() -> None:
    shell = EvalShell(datasets=("a", "b"))
    shell.seal(1)
    shell.start("v1/a")
    shell.report("v1/a")
    shell.restart(available={1})
    assert shell.in_hand == {"v1/b": 1}


def test_a_version_that_is_gone_fails() -> None:
    shell = EvalShell(on_update="queue")
    shell.seal(1)
    shell.seal(2)
    shell.start()
    shell.restart(available={2})
    assert shell.ends == {"v1/a": "failed: version_gone"}
    assert shell.running == "v2"


def test_a_running_checkpoint_goes_on_before_waiting_versions() -> None:
    shell = EvalShell()
    shell.submit(1)
    shell.seal(1)
    shell.start()
    shell.restart(available={1})
    assert shell.running == "c1"


def test_what_was_evaluated_is_not_evaluated_again() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.complete_all()
    shell.restart(available={1})
    reseal(shell, 1)
    shell.end_training()
    assert shell.ran == ["v1"]
    shell.checker.at_the_end()


def test_versions_judged_before_are_not_judged_again() -> None:
    shell = EvalShell(interval=4)
    for version in range(1, 7):
        shell.seal(version, rollout_id=version - 2 if version > 1 else None)
        shell.complete_all()
    assert shell.ran == ["v1", "v5"]
    shell.restart(available=set(range(1, 7)))
    reseal(shell, 1, 2, 3, 4, 5, 6, rollout=True)
    assert shell.ran == ["v1", "v5"]


def test_a_version_sealed_while_the_service_was_down_is_judged_by_the_same_rule() -> None:
    shell = EvalShell(interval=4)
    reseal(shell, 1, 2, 3, rollout=True)
    shell.complete_all()
    shell.restart(available={1, 2, 3, 4, 5, 6})
    reseal(shell, 1, 2, 3, 4, 5, 6, rollout=True)
    assert shell.triggers["v5"] == "interval 3"
    assert shell.running == "v5"
    assert shell.scheduler.pins == {(5, "v5"), (6, "newest")}


def test_under_finish_the_interrupted_version_completes_and_the_newest_follows() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.start()
    shell.seal(2)
    shell.restart(available={1, 2})
    assert shell.running == "v1"
    reseal(shell, 1, 2, 3)
    shell.complete_all()
    assert shell.ran == ["v1", "v1", "v3"]
    assert shell.ends["v2/a"] == "superseded: newer_version"


def test_under_cancel_a_version_that_was_being_cancelled_stays_cancelled() -> None:
    shell = EvalShell(on_update="cancel", max_consecutive_cancels=1)
    shell.seal(1)
    shell.start()
    shell.seal(2)
    shell.restart(available={1, 2})
    assert shell.ends == {"v1/a": "cancelled: newer_version"}
    assert shell.running == "v2"
    assert shell.protected == ["v2"]


def test_under_cancel_a_protected_version_is_still_protected() -> None:
    shell = EvalShell(on_update="cancel", max_consecutive_cancels=1)
    shell.seal(1)
    shell.seal(2)
    shell.complete()
    shell.start()
    shell.seal(3)
    shell.restart(available={1, 2, 3})
    reseal(shell, 1, 2, 3, 4)
    assert shell.running == "v2"
    assert shell.told_to_stop == []
    assert shell.protected == ["v2", "v2"]


def test_waiting_versions_of_an_ended_incarnation_are_superseded() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.start()
    shell.seal(2)
    shell.restart(available={1, 2}, ended_incarnation=1)
    assert shell.ends == {"v2/a": "superseded: incarnation_ended"}
    assert shell.running == "v1"


def test_a_restart_is_no_failed_attempt() -> None:
    shell = EvalShell(max_attempts=2)
    shell.seal(1)
    for _ in range(5):
        shell.start()
        shell.restart(available={1})
    shell.start()
    shell.report("v1/a", failed(EndReason.ENGINE_FAILED))
    shell.release()
    assert shell.in_hand == {"v1/a": 7}


def test_restore_comes_first() -> None:
    shell = EvalShell()
    shell.seal(1)
    with pytest.raises(RuntimeError, match="call it first"):
        shell.scheduler.restore([], available=(), now=0)


def test_restore_of_nothing_is_a_start() -> None:
    shell = EvalShell()
    assert shell.restart(available=()) == []
    shell.seal(1)
    assert shell.running == "v1"


def test_a_job_that_was_not_made_before_the_end_of_the_service_is_made() -> None:
    shell = EvalShell(datasets=("a", "b"))
    shell.seal(1)
    del shell.checker.records["v1/b"]
    shell.checker.runs.clear()
    shell.restart(available={1})
    assert shell.in_hand == {"v1/a": 1, "v1/b": 1}
    assert shell.triggers["v1"] == "restored"


def test_a_dataset_that_is_not_configured_any_more_has_no_data() -> None:
    shell = EvalShell(datasets=("a", "b"), on_update="queue")
    shell.seal(1)
    shell.seal(2)
    shell.submit(1, "b")
    shell.config = replace(shell.config, datasets=("a",))
    shell.restart(available={1, 2})
    shell.complete_all()
    assert shell.ends == {
        "v1/a": "succeeded: completed",
        "v1/b": "failed: no_data",
        "v2/a": "succeeded: completed",
        "v2/b": "failed: no_data",
        "c1/b": "failed: no_data",
    }


def test_a_version_that_was_being_loaded_counts_as_waiting() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.seal(2)
    shell.restart(available={1, 2})
    assert shell.ends == {"v1/a": "superseded: newer_version"}
    assert shell.running == "v2"
