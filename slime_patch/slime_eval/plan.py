"""What slime's eval function is given: a copy of slime's arguments with the eval engines' numbers.

Plain values only, since they travel to another process as JSON. Pure.
"""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime_patch.datasets import STOCK_EVAL
from slime_patch.reward import is_simple, simple_arguments

if TYPE_CHECKING:
    from slime_patch.settings import EngineChoice

PLAN_ENV = "LIVE_EVAL_SLIME_EVAL"
"""Names the plan's file to the service's process."""
LOG_ENV = "LIVE_EVAL_SLIME_EVAL_LOG"
"""Names the file for what the functions print."""
FULLY_ASYNC = "slime.rollout.fully_async_rollout."
"""Its functions refuse to evaluate; slime's eval_function_path falls back to them all the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlimeEvalPlan:
    """Everything the worker needs beside the gateway's address."""

    function: str
    """slime's --eval-function-path."""
    arguments: dict[str, Any]
    datasets: dict[str, dict[str, Any]]
    """Fields of slime's EvalDatasetConfig by the dataset's name."""

    def write(self, path: Path) -> None:
        """For the worker; nobody else may read it."""
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> SlimeEvalPlan:
        """What `write` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def slime_eval_plan(args: Namespace, engines: EngineChoice) -> SlimeEvalPlan:
    """The plan of a job."""
    return SlimeEvalPlan(
        function=eval_function(args),
        arguments={**simple_arguments(args), **_numbers(engines)},
        datasets={dataset.name: _fields(dataset) for dataset in args.eval_datasets},
    )


def eval_function(args: Namespace) -> str:
    """The function that evaluates: the user's, else slime's stock one."""
    path = getattr(args, "eval_function_path", None) or STOCK_EVAL
    return STOCK_EVAL if path.startswith(FULLY_ASYNC) else path


def _numbers(engines: EngineChoice) -> dict[str, Any]:
    """slime sizes its concurrency and its balancing from these."""
    return {
        "rollout_num_gpus": engines.num_engines * engines.gpus_per_engine,
        "rollout_num_gpus_per_engine": engines.gpus_per_engine,
        "rollout_num_engines": engines.num_engines,
        "sglang_server_concurrency": engines.concurrency,
        "sglang_dp_size": _dp_size(engines.args),
        "sglang_model_routers": None,
        "use_distributed_post": False,
        "partial_rollout": False,
        "use_rollout_routing_replay": False,
        "ci_test": False,
    }


def _dp_size(words: tuple[str, ...]) -> int:
    for name in ("--dp-size", "--data-parallel-size"):
        if name in words:
            return int(words[len(words) - 1 - words[::-1].index(name) + 1])
    return 1


def _fields(dataset: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(dataset).items() if is_simple(value)}
