from __future__ import annotations

from fakes.schedule_machine import ScheduleMachine
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test


def test_the_invariants_hold_in_every_order_of_events() -> None:
    run_state_machine_as_test(
        ScheduleMachine,
        settings=settings(
            max_examples=100,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],  # it goes by the clock, and a machine may be busy
        ),
    )
