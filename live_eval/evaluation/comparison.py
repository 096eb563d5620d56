"""Two versions on the same prompts: the difference of their scores with its interval, and what flipped.

Owns which prompts count as the same: those of equal row id, prompt and label, whatever their order.
Pure. Invariant: a prompt that one of the two did not score is in no difference.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from live_eval.evaluation.intervals import Estimate, estimate_difference, is_binary

if TYPE_CHECKING:
    from live_eval.evaluation.sample import Sample


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptScore:
    """What one version made of one prompt."""

    row_id: str
    mean: float
    n: int
    """Scored samples."""
    num_passed: int
    binary: bool
    """Whether all rewards are 0 or 1."""


PromptScores = Mapping[str, PromptScore]
"""By the prompt's key: `row id` and a digest of prompt and label."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flip:
    """A prompt that one of two versions passed more often than not, and the other did not."""

    row_id: str
    before: PromptScore
    after: PromptScore

    @property
    def gained(self) -> bool:
        """Whether the later version is the one that passes."""
        return _passes(self.after)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The later version minus the earlier one."""

    difference: Estimate | None
    """None without a prompt in common."""
    flips: tuple[Flip, ...]
    num_before: int
    num_after: int
    """Prompts with a score."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval of the difference is on one side of 0."""
        found = self.difference
        if found is None or found.low is None or found.high is None:
            return False
        return found.low > 0 or found.high < 0


def prompt_scores(samples: Iterable[Sample], *, pass_threshold: float = 1.0) -> dict[str, PromptScore]:
    """The scored samples by prompt; all of one job, so that a row has one prompt."""
    rewards: dict[str, list[float]] = {}
    keys: dict[str, str] = {}
    for sample in samples:
        if sample.status == "scored" and sample.reward is not None:
            if sample.row_id not in keys:
                keys[sample.row_id] = _key(sample)
            rewards.setdefault(sample.row_id, []).append(sample.reward)
    return {
        keys[row_id]: PromptScore(
            row_id=row_id,
            mean=math.fsum(values) / len(values),
            n=len(values),
            num_passed=sum(value >= pass_threshold for value in values),
            binary=is_binary(values),
        )
        for row_id, values in rewards.items()
    }


def compare(before: PromptScores, after: PromptScores) -> Comparison:
    """Compare two versions on the prompts that both have scored, each prompt once."""
    both = [key for key in before if key in after]
    differences = [after[key].mean - before[key].mean for key in both]
    binary = all(before[key].binary and after[key].binary for key in both)
    flips = [
        Flip(row_id=before[key].row_id, before=before[key], after=after[key])
        for key in both
        if _passes(before[key]) != _passes(after[key])
    ]
    return Comparison(
        difference=estimate_difference(differences, binary=binary),
        flips=tuple(flips),
        num_before=len(before),
        num_after=len(after),
    )


def comparison_metrics(name: str, found: Comparison, *, version: int) -> dict[str, float]:
    """`NAME/diff`, its `low`, `high`, `prompts` and the `version` compared with; {} without a difference."""
    difference = found.difference
    if difference is None:
        return {}
    values: dict[str, float | None] = {
        "diff": difference.mean,
        "low": difference.low,
        "high": difference.high,
        "prompts": float(difference.num_prompts),
        "version": float(version),
        "gained": float(sum(flip.gained for flip in found.flips)),
        "lost": float(sum(not flip.gained for flip in found.flips)),
    }
    return {f"{name}/{key}": value for key, value in values.items() if value is not None}


def _passes(score: PromptScore) -> bool:
    return 2 * score.num_passed > score.n


def _key(sample: Sample) -> str:
    asked = json.dumps([sample.prompt, sample.label], sort_keys=True, default=str)
    return f"{sample.row_id}\n{hashlib.sha256(asked.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
