"""Each guard is broken on purpose; the checker must see it in random orders of events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fakes.schedule_checker import Violation
from fakes.schedule_machine import ScheduleMachine
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from live_eval.reasons import EndReason, JobStatus
from live_eval.scheduling import desk, policy
from live_eval.scheduling.actions import Pin
from live_eval.scheduling.backlog import Backlog
from live_eval.scheduling.book import Book
from live_eval.scheduling.desk import Desk
from live_eval.scheduling.jobs import Evaluation, Job
from live_eval.scheduling.policy import CancelGuard, Verdict
from live_eval.scheduling.running import RunningEvaluation
from live_eval.scheduling.scheduler import Scheduler
from live_eval.scheduling.shares import Shares

Break = Callable[[pytest.MonkeyPatch], None]


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


def replace(owner: object, name: str, value: object) -> Break:
    return lambda patch: patch.setattr(owner, name, value)


def start_beside_the_running_one(self: Desk, now: float, actions: list[Any]) -> None:
    evaluation = self._backlog.next()
    if evaluation is not None:
        self._backlog.remove(evaluation)
        self._start(evaluation, now, actions)


def run_the_newest_first(self: Backlog) -> Evaluation | None:
    return self._live[-1] if self._live else (self._checkpoints[0] if self._checkpoints else None)


def give_the_whole_to_a_version_beside_others(self: Shares, evaluation: Evaluation) -> bool:
    return not self._parts or evaluation.policy_version is not None


def take_unchecked(self: Shares, evaluation: Evaluation, *, num_waiting: int) -> int | None:
    self._parts[evaluation.key] = None if self._is_whole(evaluation) else 1
    return self._parts[evaluation.key]


def cancel_whatever_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(policy, "may_cancel", lambda running: not running.protected)
    patch.setattr(Desk, "_live", property(lambda self: next(iter(self._runs.values()), None)))


def share_without_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shares, "has_room", give_the_whole_to_a_version_beside_others)
    patch.setattr(Shares, "take", take_unchecked)


def let_all_wait(*_: Any, **__: Any) -> Verdict:
    return Verdict(admit=True)


def forget_jobs(
    self: Book, evaluation: Evaluation, status: JobStatus, reason: EndReason, actions: list[Any]
) -> None:
    self.close(evaluation, actions)


def move_unchecked(self: Job, status: JobStatus) -> None:
    self.status = status


def report_unchecked(self: Desk, name: str, attempt: int) -> tuple[RunningEvaluation, Job] | None:
    found = self.book.find(name)
    run = None if found is None else self._runs.get(found[0].key)
    return None if found is None or run is None else (run, found[1])


def unpin_at_once(self: Book, version: int, owner: str, actions: list[Any]) -> None:
    self._pins.add((version, owner))
    actions.append(Pin(policy_version=version, owner=owner))
    self.unpin(version, owner, actions)


def drop_the_newest(waiting: tuple[Evaluation, ...], *, queue_size: int) -> tuple[Evaluation, ...]:
    return tuple(waiting[queue_size:])


def retry_what_was_stopped(self: RunningEvaluation, job: Job, stop: Any) -> Any:
    return self._failed(job, EndReason.ENGINE_FAILED)


def let_jobs_change_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Job, "move", move_unchecked)
    patch.setattr(Job, "ended", False)


ANY = ("finish", "cancel", "queue")
CANCEL = ("cancel",)
QUEUE = ("queue",)

BREAKS: dict[str, tuple[Break, tuple[str, ...]]] = {
    "the guard never protects": (replace(CancelGuard, "protects", False), CANCEL),
    "cancels are not counted": (replace(CancelGuard, "record", nothing), CANCEL),
    "a protected evaluation is cancelled": (
        replace(policy, "may_cancel", lambda running: running.policy_version is not None),
        CANCEL,
    ),
    "a checkpoint is cancelled for a version": (
        cancel_whatever_runs,
        CANCEL,
    ),
    "a stopped job is run again": (
        replace(RunningEvaluation, "_end_stopped", retry_what_was_stopped),
        CANCEL,
    ),
    "older versions still wait": (replace(desk, "on_newly_due", let_all_wait), ("finish",)),
    "the queue runs the newest first": (replace(Backlog, "next", run_the_newest_first), QUEUE),
    "a full queue drops the newest": (replace(desk, "overflow", drop_the_newest), QUEUE),
    "evaluations vanish without an end": (replace(Book, "end_unfinished", forget_jobs), ANY),
    "two evaluations run at once": (replace(Desk, "start_next", start_beside_the_running_one), ANY),
    "engines are lent twice": (replace(Shares, "_num_free", 9), ANY),
    "a part is never given back": (replace(Shares, "give_back", nothing), ANY),
    "a version runs beside checkpoints": (share_without_bound, ANY),
    "nothing is started": (replace(Desk, "start_next", nothing), ANY),
    "a version is not pinned": (replace(Book, "pin", nothing), ANY),
    "a pin is given back too early": (replace(Book, "pin", unpin_at_once), ANY),
    "a pin is never given back": (replace(Book, "unpin", nothing), ANY),
    "the last version is forgotten": (replace(Scheduler, "_evaluate_newest", nothing), ANY),
    "a version gets a second evaluation": (replace(Book, "has", lambda *_: False), ANY),
    "ended jobs change again": (let_jobs_change_for_ever, ANY),
    "reports of earlier attempts count": (replace(Desk, "job_in_run", report_unchecked), ANY),
    "a version lost while it waits goes on": (replace(Desk, "lose", nothing), ANY),
    "a restart forgets what waited": (replace(Desk, "_resume", nothing), ANY),
    "a shutdown leaves what waits": (replace(Desk, "clear", nothing), ANY),
}


@pytest.mark.parametrize(("broken", "policies"), BREAKS.values(), ids=BREAKS.keys())
def test_a_broken_guard_is_seen(
    broken: Break, policies: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    monkeypatch.setattr(ScheduleMachine, "policies", policies)
    with pytest.raises((Violation, RuntimeError)):
        run_state_machine_as_test(
            ScheduleMachine,
            settings=settings(
                max_examples=400,
                stateful_step_count=40,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
