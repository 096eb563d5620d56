"""A failed eval: recorded, told, or an error before the next training step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.slime_standins import RayTrainGroup

from protocol.messages import JobResult
from slime_patch.failure import EvalFailed, FailurePolicy
from slime_patch.job import watch_steps

if TYPE_CHECKING:
    from slime_patch.settings import OnFailure


class People:
    def __init__(self, action: OnFailure) -> None:
        self.alerts: list[str] = []
        self.lines: list[str] = []
        self.policy = FailurePolicy(
            action, alert=lambda _title, text: self.alerts.append(text), say=self.lines.append
        )


def result(status: str, *, reason: str = "engine_failed") -> JobResult:
    return JobResult(
        result_id="r/v3/toy", job_id="v3/toy", dataset="toy", status=status, reason=reason, detail="it broke"
    )


def test_record_says_nothing_here() -> None:
    people = People("record")
    people.policy.take(result("failed"))
    people.policy.check()
    assert people.alerts == people.lines == []


@pytest.mark.parametrize("status", ["failed", "timed_out"])
def test_alert_tells_people_and_lets_training_go_on(status: str) -> None:
    people = People("alert")
    people.policy.take(result(status))
    people.policy.check()
    assert people.alerts == [f"v3/toy ended as {status} (engine_failed): it broke"]
    assert people.lines == [f"live-eval: {people.alerts[0]}"]


@pytest.mark.parametrize("status", ["succeeded", "cancelled", "superseded", "dropped"])
def test_what_is_no_failure_is_none(status: str) -> None:
    people = People("stop")
    people.policy.take(result(status, reason="newer_version"))
    people.policy.check()
    assert people.alerts == []


def test_stop_raises_before_the_next_step_and_not_within_one() -> None:
    people, group = People("stop"), RayTrainGroup()
    watch_steps(group, people.policy.check)
    group.async_train(0, "data")
    people.policy.take(result("failed"))
    group.update_weights()  # of the step that is under way
    with pytest.raises(EvalFailed, match=r"v3/toy ended as failed .* --eval-on-failure stop"):
        group.async_train(1, "data")
    assert [call[0] for call in group._actor_handlers[0].log] == ["train", "update_weights"]


def test_a_service_that_is_given_up_counts_as_a_failure() -> None:
    people = People("stop")
    people.policy.failed("the service has failed")
    with pytest.raises(EvalFailed, match="the service has failed; training stops here"):
        people.policy.check()
