"""A training step of fixed work, and the weight updates that are put in front of it.

    plain | live-eval | plain | export | plain | ... | plain

Invariant: a kind of step is compared with the plain steps right before and right after it, so that
a machine that grows slower or faster meanwhile moves both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

WIDTH = 384
NUM_ROWS = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """Something that a trainer does with its weights between two steps."""

    run: Callable[[], object]
    """Returns when the trainer may go on."""
    finish: Callable[[], object] = lambda: None
    """Waits for what `run` left in the background; in nobody's time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateCost:
    """What one update cost the trainer."""

    blocked_s: float
    """Seconds until the trainer could go on."""
    step_s: float
    """Seconds of a step with the update less those of the steps without, next to it."""
    thread_s: float
    """As `step_s`, but processor time of the training thread, which other programs hardly touch."""
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
    step: TrainingStep, updates: Mapping[str, Update], num_rounds: int, *, between: Callable[[], object]
) -> dict[str, list[UpdateCost]]:
    """Costs of each update, `num_rounds` of them; `between` is called before every step, untimed."""
    costs: dict[str, list[UpdateCost]] = {name: [] for name in updates}

    def plain() -> tuple[float, float]:
        between()
        began, used = time.perf_counter(), time.thread_time()
        step.run()
        return time.perf_counter() - began, time.thread_time() - used

    before = plain()
    for _ in range(num_rounds):
        for name, update in updates.items():
            between()
            began, used = time.perf_counter(), time.thread_time()
            update.run()
            went_on = time.perf_counter()
            step.run()
            took, thread_took = time.perf_counter() - began, time.thread_time() - used
            covered = seconds_of(update.finish) < 0.05 * took
            after = plain()
            costs[name].append(
                UpdateCost(
                    blocked_s=went_on - began,
                    step_s=took - (before[0] + after[0]) / 2,
                    thread_s=thread_took - (before[1] + after[1]) / 2,
                    covered=covered,
                )
            )
            before = after
    return costs
