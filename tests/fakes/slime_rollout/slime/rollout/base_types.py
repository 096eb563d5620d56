from dataclasses import dataclass
from typing import Any


@dataclass
class RolloutFnEvalOutput:
    data: dict[str, dict[str, Any]]
    metrics: dict[str, Any] | None = None


def call_rollout_fn(fn, *args, evaluation: bool, **kwargs):
    output = fn(*args, **kwargs, evaluation=evaluation)
    return output if isinstance(output, RolloutFnEvalOutput) else RolloutFnEvalOutput(data=output)
