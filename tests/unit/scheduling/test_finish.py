from __future__ import annotations

from fakes.eval_shell import EvalShell

from live_eval.scheduling.actions import NotDue, Pin, RunEvaluation, Unpin


def test_an_idle_scheduler_runs_a_due_version_at_once() -> None:
    shell = EvalShell()
    shell.seal(1)
    assert shell.running == "v1"


def test_the_running_version_completes_when_a_newer_one_comes() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.seal(2)
    assert shell.told_to_stop == []
    shell.complete_all()
    assert shell.ran == ["v1", "v2"]
    assert shell.ends == {"v1/a": "succeeded: completed", "v2/a": "succeeded: completed"}


def test_versions_in_between_are_superseded_and_recorded() -> None:
    shell = EvalShell()
    for version in (1, 2, 3, 4, 5):
        shell.seal(version)
    assert shell.waiting == ["v5"]
    shell.complete_all()
    assert shell.ran == ["v1", "v5"]
    superseded = [name for name, end in shell.ends.items() if end == "superseded: newer_version"]
    assert superseded == ["v2/a", "v3/a", "v4/a"]


def test_a_version_that_is_not_due_replaces_nothing() -> None:
    shell = EvalShell(interval=2)
    shell.seal(1)
    shell.seal(3, rollout_id=1)
    assert shell.seal(4, rollout_id=2)[-2:] == [
        Pin(policy_version=4, owner="newest"),
        NotDue(policy_version=4, next_due_rollout=3),
    ]
    assert shell.waiting == ["v3"]


def test_each_dataset_has_a_job() -> None:
    shell = EvalShell(datasets=("a", "b"))
    answer = shell.seal(1)
    run = answer[-1]
    assert isinstance(run, RunEvaluation)
    assert [job.job_id for job in run.jobs] == ["v1/a", "v1/b"]


def test_a_version_reported_twice_is_evaluated_once() -> None:
    shell = EvalShell()
    shell.seal(1)
    assert shell.seal(1) == []
    shell.complete_all()
    assert shell.seal(1) == []
    assert shell.ran == ["v1"]


def test_an_older_version_that_comes_late_is_superseded() -> None:
    shell = EvalShell()
    shell.seal(3)
    shell.seal(2)
    assert shell.ends == {"v2/a": "superseded: newer_version"}


def test_the_newer_version_is_pinned_before_the_older_one_is_let_go() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.seal(2)
    pins = [action for action in shell.seal(3) if isinstance(action, Pin | Unpin)]
    assert pins == [Pin(policy_version=3, owner="v3"), Unpin(policy_version=2, owner="v2")]


def test_the_running_version_stays_pinned_until_the_engines_are_free() -> None:
    shell = EvalShell()
    shell.seal(1)
    shell.start()
    shell.report("v1/a")
    assert shell.scheduler.pins == {(1, "v1")}
    shell.release()
    assert shell.scheduler.pins == frozenset()


def test_the_newest_version_is_held_while_it_is_not_due() -> None:
    shell = EvalShell(interval=9)
    shell.seal(1)
    shell.complete_all()
    shell.seal(2, rollout_id=0)
    assert shell.scheduler.pins == {(2, "newest")}
    shell.seal(3, rollout_id=1)
    assert shell.scheduler.pins == {(3, "newest")}
