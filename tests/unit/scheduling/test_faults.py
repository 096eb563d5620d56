from __future__ import annotations

import pytest
from fakes.eval_shell import STOPPED, SUCCEEDED, EvalShell, failed

from live_eval.reasons import EndReason, JobStatus
from live_eval.scheduling.actions import EndJob, RetryJob, RunEvaluation
from live_eval.scheduling.reports import JobOutcome


@pytest.mark.parametrize("reason", [EndReason.ENGINE_FAILED, EndReason.LOAD_FAILED])
def test_a_job_whose_engine_failed_runs_again_as_a_new_attempt(reason: EndReason) -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.start()
    assert shell.report("v1/a", failed(reason)) == [
        RetryJob(job_id="v1/a", evaluation="v1", attempt=2, reason=reason)
    ]
    run = shell.release()[-1]
    assert isinstance(run, RunEvaluation)
    assert (run.run, run.jobs[0].attempt) == (2, 2)
    shell.complete()
    assert shell.ends == {"v1/a": "succeeded: completed"}


def test_only_the_jobs_that_failed_run_again() -> None:
    shell = EvalShell(datasets=("a", "b"))
    shell.seal(1)
    shell.start()
    shell.report("v1/a")
    shell.report("v1/b", failed(EndReason.ENGINE_FAILED))
    run = shell.release()[-1]
    assert isinstance(run, RunEvaluation)
    assert [job.job_id for job in run.jobs] == ["v1/b"]


def test_the_last_attempt_ends_as_failed() -> None:
    shell = EvalShell(max_attempts=2)
    shell.seal(1)
    for _ in range(2):
        shell.start()
        shell.report("v1/a", failed(EndReason.ENGINE_FAILED))
        shell.release()
    assert shell.ends == {"v1/a": "failed: engine_failed"}
    assert shell.ran == ["v1", "v1"]


@pytest.mark.parametrize(
    "reason", [EndReason.MIXED_VERSION, EndReason.PIN_MISMATCH, EndReason.NO_DATA, EndReason.INTERNAL]
)
def test_a_fault_that_is_not_the_engines_is_final(reason: EndReason) -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.start()
    shell.report("v1/a", failed(reason))
    assert shell.ends == {"v1/a": f"failed: {reason}"}


@pytest.mark.parametrize("reason", [EndReason.CORRUPT_VERSION, EndReason.PIN_MISMATCH])
def test_a_pin_that_fails_ends_all_jobs_of_the_evaluation(reason: EndReason) -> None:
    shell = EvalShell(datasets=("a", "b"))
    shell.seal(1)
    shell.release(reason)
    assert shell.ends == {"v1/a": f"failed: {reason}", "v1/b": f"failed: {reason}"}


def test_a_load_that_fails_is_tried_again() -> None:
    shell = EvalShell(datasets=("a", "b"))
    shell.seal(1)
    shell.release(EndReason.LOAD_FAILED)
    assert shell.ran == ["v1", "v1"]
    shell.release(EndReason.LOAD_FAILED)
    assert shell.ends == {"v1/a": "failed: load_failed", "v1/b": "failed: load_failed"}


def test_a_run_that_ends_without_a_word_about_a_job_is_a_fault_of_ours() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.start()
    shell.release()
    assert shell.ends == {"v1/a": "failed: internal"}


def test_a_version_dropped_by_the_store_while_it_waits_is_dropped() -> None:
    shell = EvalShell(datasets=("a", "b"))
    shell.seal(1)
    shell.seal(2)
    shell.take(shell.scheduler.version_dropped(2, now=0))
    assert shell.ends == {"v2/a": "dropped: store_full", "v2/b": "dropped: store_full"}


def test_a_version_dropped_just_as_its_turn_came_is_dropped() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.take(shell.scheduler.version_dropped(1, now=0))
    assert shell.ends == {"v1/a": "dropped: store_full"}
    assert shell.told_to_stop == ["v1/a"]
    assert shell.running == "v1"
    shell.release()
    assert shell.running is None


def test_a_run_that_finds_its_version_dropped_may_say_so() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.release(EndReason.STORE_FULL)
    assert shell.ends == {"v1/a": "dropped: store_full"}


def test_a_version_lost_while_it_runs_fails_what_is_left() -> None:
    shell = EvalShell(datasets=("a", "b", "c"))
    shell.seal(1)
    shell.start("v1/a")
    shell.report("v1/a")
    shell.start("v1/b")
    shell.take(shell.scheduler.version_dropped(1, now=0))
    assert shell.told_to_stop == ["v1/b", "v1/c"]
    shell.report("v1/b", STOPPED)
    shell.release()
    assert shell.ends == {
        "v1/a": "succeeded: completed",
        "v1/b": "failed: version_gone",
        "v1/c": "failed: version_gone",
    }


def test_a_version_dropped_before_it_was_reported_is_on_the_record() -> None:
    shell = EvalShell()
    shell.take(shell.scheduler.version_dropped(1, now=0))
    shell.seal(1)
    assert shell.ends == {"v1/a": "dropped: store_full"}


def test_a_last_version_that_the_store_dropped_is_on_the_record() -> None:
    shell = EvalShell(interval=5)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=0)
    shell.take(shell.scheduler.version_dropped(2, now=0))
    shell.end_training()
    assert shell.ends["v2/a"] == "dropped: store_full"


def test_a_job_over_its_time_is_stopped_and_timed_out() -> None:
    shell = EvalShell(datasets=("a", "b"), job_timeout_s=100)
    shell.seal(1)
    shell.start("v1/a")
    shell.pass_time(101)
    assert shell.told_to_stop == ["v1/a"]
    shell.report("v1/a", STOPPED)
    shell.complete()
    assert shell.ends == {"v1/a": "timed_out: job_timeout", "v1/b": "succeeded: completed"}


def test_time_counts_for_each_job_from_its_own_start() -> None:
    shell = EvalShell(datasets=("a", "b"), job_timeout_s=100)
    shell.seal(1)
    shell.start("v1/a")
    shell.pass_time(90)
    shell.report("v1/a")
    shell.start("v1/b")
    shell.pass_time(90)
    assert shell.told_to_stop == []


def test_an_evaluation_in_which_nothing_starts_times_out() -> None:
    shell = EvalShell(datasets=("a", "b"), job_timeout_s=100)
    shell.seal(1)
    shell.pass_time(101)
    assert shell.told_to_stop == ["v1/a", "v1/b"]
    shell.release()
    assert set(shell.ends.values()) == {"timed_out: job_timeout"}


def test_a_stop_that_nobody_confirms_ends_the_job_but_not_the_run() -> None:
    shell = EvalShell(job_timeout_s=100, abort_grace_s=10)
    shell.seal(1)
    shell.seal(2)
    shell.start()
    shell.pass_time(101)
    shell.pass_time(11)
    assert shell.ends == {"v1/a": "timed_out: job_timeout"}
    assert shell.running == "v1"
    assert shell.scheduler.pins >= {(1, "v1")}
    shell.report("v1/a", SUCCEEDED)
    shell.release()
    assert shell.ends == {"v1/a": "timed_out: job_timeout"}
    assert shell.running == "v2"


def test_a_user_cancels_a_waiting_job_and_its_neighbour_stays() -> None:
    shell = EvalShell(datasets=("a", "b"))
    shell.seal(1)
    shell.seal(2)
    shell.take(shell.scheduler.cancel("v2/a", now=0))
    assert shell.ends == {"v2/a": "cancelled: user"}
    shell.complete_all()
    assert shell.ends["v2/b"] == "succeeded: completed"


def test_a_waiting_evaluation_without_jobs_is_gone() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.seal(2)
    shell.take(shell.scheduler.cancel("v2/a", now=0))
    assert shell.waiting == []
    assert shell.scheduler.pins == {(1, "v1")}


def test_a_user_cancels_a_running_job_and_its_neighbour_goes_on() -> None:
    shell = EvalShell(datasets=("a", "b"))
    shell.seal(1)
    shell.start()
    shell.take(shell.scheduler.cancel("v1/a", now=0))
    assert shell.told_to_stop == ["v1/a"]
    shell.complete()
    assert shell.ends == {"v1/a": "cancelled: user", "v1/b": "succeeded: completed"}


@pytest.mark.parametrize("name", ["v9/a", "v1/a"])
def test_cancelling_what_is_not_there_changes_nothing(name: str) -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.complete_all()
    assert shell.take(shell.scheduler.cancel(name, now=0)) == []


def test_late_and_repeated_reports_change_nothing() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.start()
    shell.report("v1/a", failed(EndReason.ENGINE_FAILED))
    scheduler = shell.scheduler
    again = failed(EndReason.ENGINE_FAILED)
    assert scheduler.job_finished("v1/a", again, attempt=1, now=0) == []
    shell.release()
    assert scheduler.job_finished("v1/a", again, attempt=1, now=0) == []
    assert scheduler.evaluation_ended("v1", run=1, now=0) == []
    shell.complete()
    assert scheduler.job_finished("v1/a", SUCCEEDED, attempt=2, now=0) == []
    assert scheduler.job_started("v1/a", attempt=2, now=0) == []
    assert scheduler.evaluation_ended("v1", run=2, now=0) == []


def test_a_report_that_overtakes_the_start_counts() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.report("v1/a", SUCCEEDED)
    assert shell.ends == {"v1/a": "succeeded: completed"}


def test_a_job_says_in_its_end_that_it_was_protected() -> None:
    shell = EvalShell(on_update="cancel", max_consecutive_cancels=1)
    shell.seal(1)
    shell.seal(2)
    shell.complete()
    shell.start()
    assert shell.report("v2/a") == [
        EndJob(
            job_id="v2/a",
            evaluation="v2",
            status=JobStatus.SUCCEEDED,
            reason=EndReason.COMPLETED,
            attempt=1,
            protected=True,
        )
    ]


@pytest.mark.parametrize("status", [JobStatus.WAITING, JobStatus.SUPERSEDED, JobStatus.DROPPED])
def test_a_run_cannot_report_what_only_the_scheduler_decides(status: JobStatus) -> None:
    with pytest.raises(ValueError, match="a run cannot end as"):
        JobOutcome(status=status)


def test_a_job_that_a_user_cancelled_stays_so_when_its_version_is_dropped() -> None:
    shell = EvalShell(datasets=("a", "b"))
    shell.seal(1)
    shell.take(shell.scheduler.cancel("v1/a", now=0))
    shell.take(shell.scheduler.version_dropped(1, now=0))
    shell.release()
    assert shell.ends == {"v1/a": "cancelled: user", "v1/b": "dropped: store_full"}
