"""slime's rewards for live-eval's samples.

Runs in live-eval's grading processes: a sample becomes slime's Sample and goes through slime's own
async_rm, so --rm-type and --custom-rm-path mean what they mean in slime. What async_rm reads from
slime's arguments comes from a file that `write_arguments` made.
"""

from __future__ import annotations

import functools
import json
import os
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_eval.errors import ConfigError

if TYPE_CHECKING:
    from live_eval.evaluation.rewards import RewardSample
    from slime_patch.datasets import DatasetPlan

ARGUMENTS_ENV = "LIVE_EVAL_SLIME_ARGUMENTS"
"""Names the file of slime's arguments."""
_SECRETS = {"wandb_key"}
_SIMPLE = (str, int, float, bool, type(None))


async def reward(sample: RewardSample) -> float | dict[str, float]:
    """The sample's reward by slime's rule for its dataset."""
    from slime.rollout.rm_hub import async_rm  # pyright: ignore[reportMissingImports]
    from slime.utils.types import Sample  # pyright: ignore[reportMissingImports]

    args, datasets = _arguments()
    slime_sample = Sample(
        index=sample.sample,
        prompt=sample.prompt,
        response=sample.response,
        response_length=sample.num_tokens,
        label=sample.label,
        metadata=dict(sample.metadata),  # with the dataset's rule and overrides, as slime injects them
    )
    slime_sample.custom_rm_path = datasets.get(sample.dataset)
    return await async_rm(args, slime_sample)


@functools.cache
def _arguments() -> tuple[Namespace, dict[str, str | None]]:
    path = os.environ.get(ARGUMENTS_ENV)
    if path is None:
        raise ConfigError(f"{ARGUMENTS_ENV} is not set: rewards of slime are for evals of a slime job")
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    return Namespace(**stored["arguments"]), stored["datasets"]


def simple_arguments(args: Namespace) -> dict[str, Any]:
    """slime's arguments that are JSON values, without secrets: what reward functions may read."""
    return {name: value for name, value in vars(args).items() if name not in _SECRETS and is_simple(value)}


def write_arguments(path: Path, arguments: dict[str, Any], plans: Iterable[DatasetPlan]) -> None:
    """Leave slime's arguments and the datasets' reward functions for the grading processes."""
    functions = {plan.name: plan.custom_rm_path for plan in plans}
    path.write_text(json.dumps({"arguments": arguments, "datasets": functions}), encoding="utf-8")
    path.chmod(0o600)


def is_simple(value: Any) -> bool:
    """Whether JSON can carry it."""
    if isinstance(value, list | tuple):
        return all(map(is_simple, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_simple(part) for key, part in value.items())
    return isinstance(value, _SIMPLE)
