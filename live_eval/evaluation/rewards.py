"""Rewards: how an answer becomes a number.

Owns the kinds of grader. A grader answers with a Grade or raises RewardError: a fault of
grading is never a wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from live_eval.errors import RewardError
from live_eval.evaluation.gathering import Gathering
from live_eval.evaluation.labels import label_text
from live_eval.evaluation.rules import GRADE
from live_eval.evaluation.set_config import BOXED, EXACT_MATCH, REMOTE, EvalSetConfig, RewardMode, is_rule

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
    metadata: dict[str, Any] = field(default_factory=dict)
    """The row's metadata under the dataset's overrides."""

    @property
    def index(self) -> int:
        """Number of the sample in its row; slime's name for a sample's number."""
        return self.sample

    @property
    def response_length(self) -> int:
        """Tokens of the response; slime's name for them."""
        return self.num_tokens

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

    def __init__(
        self,
        function: str,
        *,
        pool: GradingPool,
        reward_key: str | None = None,
        options: Mapping[str, Any] | None = None,
        mode: RewardMode = "single",
        batch_size: int = 1,
    ) -> None:
        """`options`: what a function of two arguments is given first, by attribute."""
        self._function = function
        self._pool = pool
        self._reward_key = reward_key
        self._options = dict(options or {})
        self._many = None
        if mode != "single":
            self._many = Gathering(function, pool=pool, mode=mode, size=batch_size, options=self._options)

    async def grade(self, sample: RewardSample) -> Grade:
        """RewardError: it raised, did not end in time, died, or its result is no reward."""
        if self._many is not None:
            value = await self._many.value(sample)
        else:
            value = await self._pool.call(self._function, sample, options=self._options)
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
                f"{sample.where}: {self._function} returned a dict with the numbers {sorted(value)}, "
                f"which lacks reward_key {self._reward_key!r}"
            )
        return Grade(reward=value[self._reward_key], rewards=value)


class RuleGrader:
    """slime's rules by name, of which a row may name its own; exact match needs no process."""

    def __init__(self, config: EvalSetConfig, pool: GradingPool) -> None:
        self._config = config
        self._pool = pool
        self._exact = ExactMatch()
        self._graders: dict[str, FunctionGrader] = {}

    async def grade(self, sample: RewardSample) -> Grade:
        """RewardError: the rule cannot tell, or its process ended."""
        config = self._config
        own = str(sample.metadata.get("rm_type") or "").strip() if config.reward_by_row else ""
        rule = own or config.reward
        if own and config.row_function is not None:
            rule = config.row_function
        if rule == EXACT_MATCH:
            return await self._exact.grade(sample)
        if rule not in self._graders:
            self._graders[rule] = self._made(rule)
        return await self._graders[rule].grade(sample)

    def _made(self, rule: str) -> FunctionGrader:
        config, bare = self._config, rule.removeprefix(BOXED)
        if rule == config.row_function:
            return FunctionGrader(rule, pool=self._pool, reward_key=config.reward_key)
        return FunctionGrader(
            GRADE,
            pool=self._pool,
            reward_key=config.reward_key if bare in ("dapo", REMOTE) else None,
            options={"rm_type": rule, "rm_url": config.reward_url},
            mode="concurrent" if bare == REMOTE else "single",
            batch_size=config.reward_batch_size,
        )


def make_grader(config: EvalSetConfig, pool: GradingPool) -> Grader:
    """The grader that a dataset's configuration asks for."""
    if config.reward_by_row or is_rule(config.reward):
        return RuleGrader(config, pool)
    if config.reward == EXACT_MATCH:
        return ExactMatch()
    return FunctionGrader(
        config.reward,
        pool=pool,
        reward_key=config.reward_key,
        options={"reward_key": config.reward_key, "rm_type": None, "rm_url": config.reward_url},
        mode=config.reward_mode,
        batch_size=config.reward_batch_size,
    )
