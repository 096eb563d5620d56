"""Datasets that are not evaluated on every due version."""

from __future__ import annotations

import pytest
from fakes.eval_shell import EvalShell, failed

from live_eval.errors import ConfigError
from live_eval.reasons import EndReason
from live_eval.scheduling.config import SchedulerConfig


def shell(**settings: object) -> EvalShell:
    return EvalShell(**{"datasets": ("a", "b"), "eval_every": {"b": 3}, **settings})


def with_b(bench: EvalShell) -> list[str]:
    return [name for name in bench.checker.records if name.endswith("/b")]


def run_versions(bench: EvalShell, versions: range) -> None:
    for version in versions:
        bench.seal(version, rollout_id=version)
        bench.complete_all()


def test_the_first_and_each_third_after_it() -> None:
    bench = shell()
    run_versions(bench, range(1, 9))
    assert with_b(bench) == ["v1/b", "v4/b", "v7/b"]
    assert bench.ends == dict.fromkeys(bench.checker.records, "succeeded: completed")


@pytest.mark.parametrize("policy", ["finish", "cancel"])
def test_a_turn_that_was_superseded_comes_with_the_next_due_version(policy: str) -> None:
    bench = shell(on_update=policy, max_consecutive_cancels=1)
    run_versions(bench, range(1, 4))
    bench.seal(4)  # runs, with b
    bench.start()
    for version in (5, 6, 7):
        bench.seal(version)
    bench.complete_all()
    bench.seal(8)
    bench.complete_all()
    assert bench.ends["v7/a"] == "succeeded: completed"
    if policy == "finish":  # v4 was served
        assert with_b(bench) == ["v1/b", "v4/b", "v7/b"]
        assert bench.ends["v5/a"] == "superseded: newer_version"
    else:  # v4 was cancelled, so every later version has b until one serves it
        assert with_b(bench) == ["v1/b", "v4/b", "v5/b", "v6/b", "v7/b"]
        assert bench.ends["v4/b"] == "cancelled: newer_version"
        assert bench.ends["v7/b"] == "succeeded: completed"


def test_a_queue_counts_what_waits() -> None:
    bench = shell(on_update="queue")
    for version in range(1, 6):
        bench.seal(version)
    bench.complete_all()
    assert with_b(bench) == ["v1/b", "v4/b"]


def test_a_failed_turn_counts() -> None:
    bench = shell(max_attempts=1)
    bench.seal(1)
    bench.start()
    bench.report("v1/a")
    bench.report("v1/b", failed(EndReason.NO_DATA))
    bench.release()
    run_versions(bench, range(2, 4))
    assert with_b(bench) == ["v1/b"]


def test_the_last_version_and_checkpoints_are_evaluated_on_all() -> None:
    bench = shell(interval=2)
    run_versions(bench, range(1, 4))
    bench.submit(1)
    bench.complete_all()
    bench.seal(4, rollout_id=4)
    bench.end_training()
    bench.complete_all()
    assert {"v1/b", "c1/b", "v4/b"} <= set(with_b(bench))


def test_a_restart_goes_on_with_the_count() -> None:
    bench = shell()
    run_versions(bench, range(1, 3))
    bench.restart(available=[1, 2])
    run_versions(bench, range(3, 5))
    assert with_b(bench) == ["v1/b", "v4/b"]


def test_a_version_whose_turn_it_is_for_none_is_passed_over_unless_it_is_the_last() -> None:
    bench = EvalShell(datasets=("b",), eval_every={"b": 3})
    run_versions(bench, range(1, 7))
    assert with_b(bench) == ["v1/b", "v4/b"]
    bench.end_training()
    bench.complete_all()
    assert with_b(bench) == ["v1/b", "v4/b", "v6/b"]


def test_a_job_has_its_own_time() -> None:
    bench = shell(job_timeout_s=10.0, job_timeouts={"b": 30.0}, abort_grace_s=1000.0)
    bench.seal(1)
    bench.start()
    bench.pass_time(11.0)
    assert bench.told_to_stop == ["v1/a"]
    bench.pass_time(20.0)
    assert bench.told_to_stop == ["v1/a", "v1/b"]


@pytest.mark.parametrize(
    "bad", [{"eval_every": {"c": 2}}, {"eval_every": {"a": 0}}, {"job_timeouts": {"a": 0.0}}]
)
def test_settings_that_cannot_work_are_refused(bad: dict) -> None:
    with pytest.raises(ConfigError):
        SchedulerConfig(datasets=("a",), **bad)
