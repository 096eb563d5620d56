from __future__ import annotations

from fakes.eval_shell import SUCCEEDED, EvalShell, failed

from live_eval.reasons import EndReason
from live_eval.scheduling.actions import CancelRunning, RetryJob


def cancelling(**settings: object) -> EvalShell:
    return EvalShell(on_update="cancel", **settings)


def test_the_running_version_is_stopped_and_the_newer_one_runs_when_the_engines_are_free() -> None:
    shell = cancelling()
    shell.seal(1)
    shell.start()
    shell.seal(2)
    assert shell.told_to_stop == ["v1/a"]
    assert shell.running == "v1"
    shell.complete()
    assert shell.ends == {"v1/a": "cancelled: newer_version"}
    assert shell.running == "v2"


def test_only_the_newest_follows_a_cancelled_one() -> None:
    shell = cancelling()
    shell.seal(1)
    shell.seal(2)
    shell.seal(3)
    shell.complete_all()
    assert shell.ran == ["v1", "v3"]
    assert shell.ends["v2/a"] == "superseded: newer_version"


def test_it_is_told_to_stop_once() -> None:
    shell = cancelling()
    shell.seal(1)
    shell.seal(2)
    answer = shell.seal(3)
    assert not [action for action in answer if isinstance(action, CancelRunning)]


def test_a_version_that_is_not_due_cancels_nothing() -> None:
    shell = cancelling(interval=5)
    shell.seal(1)
    shell.seal(2, rollout_id=1)
    assert shell.told_to_stop == []


def test_datasets_that_are_done_keep_their_scores() -> None:
    shell = cancelling(datasets=("a", "b", "c"))
    shell.seal(1)
    shell.start("v1/a")
    shell.report("v1/a")
    shell.start("v1/b")
    shell.seal(2)
    assert shell.told_to_stop == ["v1/b", "v1/c"]
    shell.complete()
    assert shell.ends == {
        "v1/a": "succeeded: completed",
        "v1/b": "cancelled: newer_version",
        "v1/c": "cancelled: newer_version",
    }


def test_a_job_that_was_done_before_the_stop_came_through_succeeds() -> None:
    shell = cancelling()
    shell.seal(1)
    shell.start()
    shell.seal(2)
    shell.report("v1/a", SUCCEEDED)
    shell.release()
    assert shell.ends["v1/a"] == "succeeded: completed"
    assert shell.running == "v2"


def test_a_failure_of_a_stopped_job_is_a_cancel_and_no_retry() -> None:
    shell = cancelling()
    shell.seal(1)
    shell.start()
    shell.seal(2)
    shell.report("v1/a", failed(EndReason.ENGINE_FAILED))
    assert shell.ends["v1/a"] == "cancelled: newer_version"


def test_a_job_that_waits_for_its_retry_is_cancelled_at_once() -> None:
    shell = cancelling()
    shell.seal(1)
    shell.start()
    assert isinstance(shell.report("v1/a", failed(EndReason.ENGINE_FAILED))[0], RetryJob)
    shell.seal(2)
    assert shell.ends["v1/a"] == "cancelled: newer_version"
    shell.release()
    assert shell.running == "v2"


def test_after_cancels_in_a_row_the_next_one_is_protected_and_completes() -> None:
    shell = cancelling(max_consecutive_cancels=3)
    for version in range(1, 7):
        shell.seal(version)
        if shell.told_to_stop:
            shell.complete()
    assert shell.ran == ["v1", "v2", "v3", "v4"]
    assert shell.protected == ["v4"]
    assert shell.told_to_stop == []
    shell.complete()
    assert shell.ends["v4/a"] == "succeeded: completed"
    assert shell.ends["v5/a"] == "superseded: newer_version"
    assert shell.running == "v6"


def test_a_success_lowers_the_guard() -> None:
    shell = cancelling(max_consecutive_cancels=1)
    shell.seal(1)
    shell.seal(2)
    shell.complete()
    shell.complete()
    shell.seal(3)
    shell.seal(4)
    shell.complete_all()
    assert shell.protected == ["v2", "v4"]
    assert shell.ends["v3/a"] == "cancelled: newer_version"


def test_a_protected_one_that_scores_nothing_leaves_the_guard_up() -> None:
    shell = cancelling(max_consecutive_cancels=1)
    shell.seal(1)
    shell.seal(2)
    shell.complete()
    shell.start()
    shell.report("v2/a", failed(EndReason.NO_DATA))
    shell.release()
    shell.seal(3)
    shell.seal(4)
    assert shell.protected == ["v2", "v3"]
    assert shell.told_to_stop == []


def test_a_job_that_never_scored_because_of_cancels_counts_though_its_neighbour_did() -> None:
    shell = cancelling(datasets=("a", "b"), max_consecutive_cancels=1)
    shell.seal(1)
    shell.start("v1/a")
    shell.report("v1/a")
    shell.seal(2)
    shell.complete()
    assert shell.protected == ["v2"]


def test_an_older_version_that_comes_late_cancels_nothing() -> None:
    shell = cancelling()
    shell.seal(3)
    shell.seal(2)
    assert shell.told_to_stop == []
    assert shell.ends == {"v2/a": "superseded: newer_version"}
