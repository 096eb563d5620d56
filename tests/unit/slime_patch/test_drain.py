"""The end of a job waits for the service, and not for one whose node does not come back."""

from __future__ import annotations

import pytest
from fakes.driver_ray import DriverRay, Handle, RayError

from slime_patch import drain as drain_module
from slime_patch.drain import drain
from slime_patch.service_actor import ServiceState

METHODS = ("state", "training_ended", "summary")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> DriverRay:
    monkeypatch.setattr(drain_module, "LOOK_S", 0.01)
    monkeypatch.setattr(drain_module, "GONE_S", 0.1)
    return DriverRay(monkeypatch)


def gone() -> ServiceState:
    raise RayError("the actor is dead")


def test_a_service_that_is_started_again_elsewhere_is_asked_there(ray: DriverRay) -> None:
    ray.answers |= {
        "old.state": gone,
        "new.state": lambda: ServiceState(phase="finished"),
        "new.summary": lambda: ["v1/toy: score 1.0"],
    }
    actors = [ray.handle("old", *METHODS), ray.handle("new", *METHODS)]
    said: list[str] = []

    def now() -> Handle:
        return actors.pop(0) if len(actors) > 1 else actors[0]

    assert drain(now, budget_s=60.0, say=said.append) == "finished"
    assert said[-1] == "live-eval: v1/toy: score 1.0"


def test_a_service_that_stays_away_is_given_up_long_before_the_budget(ray: DriverRay) -> None:
    ray.answers["old.state"] = gone
    said: list[str] = []
    handle = ray.handle("old", *METHODS)
    assert drain(lambda: handle, budget_s=60.0, say=said.append) == "gone"
    assert "has not come back" in said[-1]
