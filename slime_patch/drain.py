"""The end of a job: waits until everything due is evaluated, and says what is waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slime_patch.service_actor import ServiceState

logger = logging.getLogger(__name__)

LOOK_S = 2.0
SAY_EVERY_S = 30.0
ANSWER_TIMEOUT_S = 30.0
MARGIN_S = 60.0
"""Beyond the budget, in which the service itself ends the jobs that are left."""
GONE_S = 300.0
"""Longest wait for a service whose actor does not answer: for a node with room, where its node has gone."""
MAX_NAMES = 6


def drain(service: Callable[[], Any], *, budget_s: float, say: Callable[[str], None] | None = None) -> str:
    """Tell the service that training has ended, each life of it; the phase in which it ended.

    `service()` is its actor as it is now. Returns after `budget_s` seconds and a margin at the latest.
    """
    import ray
    import ray.exceptions

    say = say or _print
    began = time.monotonic()
    last_said, last_line, answered_at = 0.0, "", began
    while (waited := time.monotonic() - began) < budget_s + MARGIN_S:
        try:
            actor = service()
            state: ServiceState = ray.get(actor.state.remote(), timeout=ANSWER_TIMEOUT_S)
            answered_at = time.monotonic()
            if state.phase in ("finished", "failed"):
                _say_end(actor, state, say)
                return state.phase
            if state.phase == "serving":
                ray.get(actor.training_ended.remote(), timeout=ANSWER_TIMEOUT_S)
            line = waiting_line(state)
        except ray.exceptions.RayError as error:
            logger.info("the service's actor does not answer: %s", error)
            line = "waiting for the service to come back"
            if time.monotonic() - answered_at > GONE_S:
                say(f"live-eval: the service has not come back in {GONE_S:.0f} s; what is left is lost")
                return "gone"
        if line != last_line or time.monotonic() - last_said > SAY_EVERY_S:
            say(f"live-eval: training has ended; {line} ({max(0.0, budget_s - waited):.0f} s left)")
            last_said, last_line = time.monotonic(), line
        time.sleep(LOOK_S)
    say(f"live-eval: not done within {budget_s:.0f} s; what is left is cancelled")
    return "late"


def waiting_line(state: ServiceState) -> str:
    """What is waited for, in one line."""
    if state.phase == "starting":
        engines = ", ".join(f"{name} is {what}" for name, what in state.engines)
        return f"waiting for the eval engines to start ({engines or 'launching'})"
    if state.phase == "ending":
        return "waiting for the service to write its last results and end"
    names = [*state.running, *state.waiting]
    if not names:
        return "looking for what is left"
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"waiting for {', '.join(names[:MAX_NAMES])}{more}"


def _say_end(service: Any, state: ServiceState, say: Callable[[str], None]) -> None:
    import ray
    import ray.exceptions

    if state.phase == "failed":
        say("live-eval: the service has failed; see logs/service.log in the output directory")
    try:
        for line in ray.get(service.summary.remote(), timeout=ANSWER_TIMEOUT_S):
            say(f"live-eval: {line}")
    except ray.exceptions.RayError as error:
        logger.warning("no summary: %s", error)


def _print(line: str) -> None:
    print(line, flush=True)
