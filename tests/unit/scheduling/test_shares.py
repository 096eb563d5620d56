"""Checkpoints side by side, each on its part of the engines."""

from __future__ import annotations

import pytest
from fakes.eval_shell import EvalShell, failed

from live_eval.errors import ConfigError
from live_eval.reasons import EndReason
from live_eval.scheduling.config import SchedulerConfig


def test_by_default_one_checkpoint_after_the_other_has_all_engines() -> None:
    shell = EvalShell(num_engines=4)
    shell.submit(1)
    shell.submit(2)
    assert shell.parts == {"c1": None}


def test_checkpoints_run_side_by_side_on_parts_of_a_fixed_size() -> None:
    shell = EvalShell(num_engines=5, engines_per_eval=2)
    for number in (1, 2, 3):
        shell.submit(number)
    assert shell.parts == {"c1": 2, "c2": 2}
    assert shell.scheduler.running == ("c1/a", "c2/a")
    shell.complete("c2")
    assert shell.parts == {"c1": 2, "c3": 2}


def test_a_part_is_no_larger_than_the_group() -> None:
    shell = EvalShell(num_engines=2, engines_per_eval=8)
    shell.submit(1)
    shell.submit(2)
    assert shell.parts == {"c1": 2}


def test_fair_parts_divide_what_is_free_among_those_that_wait() -> None:
    shell = EvalShell(num_engines=4, engines_per_eval="fair")
    for number in (1, 2, 3):
        shell.submit(number)
    assert shell.parts == {"c1": 4}  # nobody else waited
    shell.complete("c1")
    assert shell.parts == {"c2": 2, "c3": 2}
    for number in (4, 5, 6):
        shell.submit(number)
    shell.complete("c2")
    assert shell.parts == {"c3": 2, "c4": 1, "c5": 1}


def test_priorities_order_those_that_get_a_part_and_stop_none_that_has_one() -> None:
    shell = EvalShell(num_engines=2, engines_per_eval=1)
    for number, priority in ((1, 0), (2, 0), (3, 0), (4, 9)):
        shell.submit(number, priority=priority)
    assert shell.parts == {"c1": 1, "c2": 1}
    shell.complete("c1")
    assert shell.told_to_stop == []
    assert list(shell.parts) == ["c2", "c4"]


def test_a_version_waits_for_the_checkpoints_that_run_and_then_has_all_engines() -> None:
    shell = EvalShell(num_engines=2, engines_per_eval=1)
    shell.submit(1)
    shell.submit(2)
    shell.submit(3)
    shell.seal(1)
    shell.complete("c1")
    assert shell.parts == {"c2": 1}  # c3 does not overtake v1
    shell.complete("c2")
    assert shell.parts == {"v1": None}
    shell.seal(2)
    shell.complete("v1")
    assert shell.parts == {"c3": 1}
    shell.submit(4)
    assert list(shell.parts) == ["c3", "c4"]  # it is still the checkpoints' turn
    shell.complete("c3")
    shell.complete("c4")
    assert shell.parts == {"v2": None}


def test_a_newer_version_stops_no_checkpoint() -> None:
    shell = EvalShell(on_update="cancel", num_engines=2, engines_per_eval=1)
    shell.submit(1)
    shell.submit(2)
    shell.seal(1)
    shell.seal(2)
    assert shell.told_to_stop == []
    assert shell.ends == {"v1/a": "superseded: newer_version"}


def test_a_user_cancels_one_of_those_that_run() -> None:
    shell = EvalShell(num_engines=2, engines_per_eval=1)
    shell.submit(1)
    shell.submit(2)
    shell.take(shell.scheduler.cancel("c2/a", now=shell.now))
    assert shell.told_to_stop == ["c2/a"]
    shell.complete("c2")
    shell.complete("c1")
    assert shell.ends == {"c2/a": "cancelled: user", "c1/a": "succeeded: completed"}


def test_a_run_that_failed_is_run_again_on_its_part_while_the_others_go_on() -> None:
    shell = EvalShell(num_engines=3, engines_per_eval=1)
    for number in (1, 2, 3):
        shell.submit(number)
    shell.start()
    shell.report("c2/a", failed(EndReason.ENGINE_FAILED))
    shell.release(evaluation="c2")
    assert shell.parts == {"c1": 1, "c3": 1, "c2": 1}
    assert [job.attempt for job in shell.checker.held["c2"].jobs] == [2]


def test_each_job_has_its_own_time() -> None:
    shell = EvalShell(num_engines=2, engines_per_eval=1, job_timeout_s=100.0)
    shell.submit(1)
    shell.start()
    shell.pass_time(60.0)
    shell.submit(2)
    shell.start("c2/a")
    shell.pass_time(60.0)
    assert shell.told_to_stop == ["c1/a"]


def test_engines_that_are_given_up_are_in_no_part() -> None:
    shell = EvalShell(num_engines=3, engines_per_eval=1)
    shell.submit(1)
    shell.checker.num_engines = 2
    shell.take(shell.scheduler.engines_left(2, now=shell.now))
    shell.submit(2)
    shell.submit(3)
    assert list(shell.parts) == ["c1", "c2"]
    shell.checker.num_engines = 1
    shell.take(shell.scheduler.engines_left(0, now=shell.now))
    shell.complete("c1")
    assert list(shell.parts) == ["c2"]
    shell.complete("c2")
    assert list(shell.parts) == ["c3"]  # the last one is tried, and says why it cannot be run


def test_after_a_restart_those_that_had_begun_go_on_side_by_side() -> None:
    shell = EvalShell(num_engines=4, engines_per_eval="fair")
    for number in (1, 2, 3, 4):
        shell.submit(number)
    shell.complete("c1")
    shell.start("c2/a", "c4/a")
    shell.restart(available=())
    assert shell.parts == {"c2": 2, "c4": 2}


def test_a_shutdown_stops_all_that_run() -> None:
    shell = EvalShell(num_engines=2, engines_per_eval=1)
    shell.submit(1)
    shell.submit(2)
    shell.take(shell.scheduler.shutdown(now=shell.now))
    assert shell.told_to_stop == ["c1/a", "c2/a"]
    shell.complete("c2")
    assert not shell.checker.finished
    shell.complete("c1")
    assert shell.checker.finished


@pytest.mark.parametrize("per_eval", [0, -1, "half"])
def test_a_part_that_is_none_is_refused(per_eval: object) -> None:
    with pytest.raises(ConfigError, match="engines_per_eval"):
        SchedulerConfig(datasets=("a",), engines_per_eval=per_eval)  # type: ignore[arg-type]
