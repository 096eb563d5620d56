"""A training step of fixed work, and the weight updates that are put in front of it.

    aside ... aside | plain | live-eval | plain | export | plain | ... | plain        one round

Invariant: a kind of step is compared with the plain steps right before and right after it, so that
a machine that grows slower or faster meanwhile moves both. Updates of which it is only to be known how
long they keep the trainer stand aside: no step follows them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from benchmarks.update import Update

SCHEDULED = Path("/proc/thread-self/schedstat")
WIDTH = 384
NUM_ROWS = 256
NOT_OVER = 0.05
"""Waited for what an update left in the background, as a part of the step; more: it outlasts the step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateCost:
    """What one update cost the trainer."""

    blocked_s: float
    """Seconds until the trainer could go on."""
    step_s: float
    """Seconds of a step with the update less those of the steps without, next to it."""
    thread_s: float
    """As `step_s`, but processor time of the training thread."""
    waited_s: float
    """As `step_s`, but time in which the training thread was ready and had no core."""
    covered: bool
    """Whether its background work ended before the step did, so that `step_s` has all of its cost."""


class TrainingStep:
    """Forward, backward and an optimizer step of an MLP in fp32, a fixed number of times."""

    def __init__(self) -> None:
        layers: list[torch.nn.Module] = []
        for _ in range(3):
            layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
        self._model = torch.nn.Sequential(*layers)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)
        self._batch = torch.randn(NUM_ROWS, WIDTH)
        self._num_units = 4

    def run(self) -> None:
        """The work of one step."""
        for _ in range(self._num_units):
            loss = (self._model(self._batch) - self._batch).square().mean()
            loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad(set_to_none=False)

    def fit(self, seconds: float) -> float:
        """Set the work so that a step takes about so long; how long it takes."""
        self.run()
        took = statistics.median(seconds_of(self.run) for _ in range(5))
        self._num_units = max(round(self._num_units * seconds / took), 1)
        return took / 4 * self._num_units


def seconds_of(call: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure_updates(
    step: TrainingStep,
    updates: Mapping[str, Update],
    num_rounds: int,
    *,
    aside: Mapping[str, Update],
    between: Callable[[], object],
) -> tuple[dict[str, list[UpdateCost]], dict[str, list[float]]]:
    """Costs of each update, `num_rounds` of them, and the seconds that those aside keep the trainer.

    `between` is called before everything that is timed.
    """
    costs: dict[str, list[UpdateCost]] = {name: [] for name in updates}
    blocked: dict[str, list[float]] = {name: [] for name in aside}

    def plain() -> _Times:
        between()
        return _Times.of(step.run)

    for _ in range(num_rounds):
        for name, update in aside.items():
            between()
            blocked[name].append(seconds_of(update.run))
            update.finish()
        before = plain()
        for name, update in updates.items():
            between()
            stalled = _Times.of(update.run)
            stepped = _Times.of(step.run)
            covered = seconds_of(update.finish) < NOT_OVER * stepped.wall
            after = plain()
            costs[name].append(
                UpdateCost(
                    blocked_s=stalled.wall,
                    step_s=stalled.wall + stepped.wall - (before.wall + after.wall) / 2,
                    thread_s=stalled.thread + stepped.thread - (before.thread + after.thread) / 2,
                    waited_s=stalled.waited + stepped.waited - (before.waited + after.waited) / 2,
                    covered=covered,
                )
            )
            before = after
    return costs, blocked


class _Times(NamedTuple):
    """Seconds: of the clock, of the calling thread's processor time, of its waits for a core."""

    wall: float
    thread: float
    waited: float

    @classmethod
    def of(cls, call: Callable[[], object]) -> _Times:
        began = _now()
        call()
        return cls(*(now - then for now, then in zip(_now(), began, strict=True)))


def _now() -> tuple[float, float, float]:
    # Run time and waits in nanoseconds; zeros where the kernel does not count.
    _, waited, _ = SCHEDULED.read_text(encoding="ascii").split()
    return time.perf_counter(), time.thread_time(), int(waited) / 1e9
