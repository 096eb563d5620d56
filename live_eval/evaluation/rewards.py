"""Rewards: how an answer becomes a number.

Owns the two kinds of grader. A grader answers with a Grade or raises RewardError: a fault of
grading is never a wrong answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from live_eval.errors import RewardError
from live_eval.evaluation.datasets import EXACT_MATCH, EvalSetConfig
from live_eval.evaluation.labels import label_text

if TYPE_CHECKING:
    from live_eval.evaluation.grading_pool import GradingPool


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardSample:
    """What a reward function is given."""

    dataset: str
    row_id: str
    sample: int
    prompt: str
    response: str
    label: Any
    """As it stands in the dataset's file."""
    finish_reason: str = "stop"
    """`stop` or `length`."""
    num_tokens: int = 0
    """Tokens of the response."""
    fields: dict[str, Any] = field(default_factory=dict)
    """All fields of the dataset's row."""

    @property
    def where(self) -> str:
        """How errors name the sample."""
        return f"dataset {self.dataset!r}, row {self.row_id}, sample {self.sample}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Grade:
    """A sample's reward."""

    reward: float
    rewards: dict[str, float] = field(default_factory=dict)
    """All numbers of a reward function that returns a dict."""


class Grader(Protocol):
    """Grades samples of one dataset."""

    async def grade(self, sample: RewardSample) -> Grade:
        """The sample's reward; RewardError, naming the sample, if there is none."""
        ...


class ExactMatch:
    """1.0 if answer and label are the same text by the rule of `labels`, else 0.0."""

    async def grade(self, sample: RewardSample) -> Grade:
        """Never fails: labels were checked when the dataset was loaded."""
        return Grade(reward=float(label_text(sample.response) == label_text(sample.label)))


class FunctionGrader:
    """A user's function, run in the pool's worker processes."""

    def __init__(self, function: str, *, pool: GradingPool, reward_key: str | None = None) -> None:
        self._function = function
        self._pool = pool
        self._reward_key = reward_key

    async def grade(self, sample: RewardSample) -> Grade:
        """RewardError: it raised, did not end in time, died, or its result is no reward."""
        value = await self._pool.call(self._function, sample)
        if not isinstance(value, dict):
            if self._reward_key is not None:
                raise RewardError(
                    f"{sample.where}: {self._function} returned the number {value}, "
                    f"but reward_key is {self._reward_key!r}: return a dict, or give no reward_key"
                )
            return Grade(reward=value)
        if self._reward_key is None:
            raise RewardError(
                f"{sample.where}: {self._function} returned a dict with {sorted(value)}: "
                "set reward_key to the one that is the reward"
            )
        if self._reward_key not in value:
            raise RewardError(
                f"{sample.where}: {self._function} returned a dict with {sorted(value)}, "
                f"which lacks reward_key {self._reward_key!r}"
            )
        return Grade(reward=value[self._reward_key], rewards=value)


def make_grader(config: EvalSetConfig, pool: GradingPool) -> Grader:
    """The grader that a dataset's configuration asks for."""
    if config.reward == EXACT_MATCH:
        return ExactMatch()
    return FunctionGrader(config.reward, pool=pool, reward_key=config.reward_key)
