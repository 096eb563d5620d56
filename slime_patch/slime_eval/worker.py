"""The process in which slime's eval function and its log function run.

    python -m slime_patch.slime_eval.worker PARENT_PID PLAN.json GATEWAY_PORT

One JSON object a line on stdin asks for one dataset; one line on the first stdout answers, when its
samples are on disk. What the functions print goes to the log. What the log function would write to
W&B is caught and answered: the driver writes it into the trainer's run, which this process has not
joined. The process is killed whenever its job is to end, so it holds nothing that must be given back.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import IO, Any

from live_eval.evaluation.metrics import compute_metrics, with_data
from live_eval.evaluation.sample_log import SampleLog
from slime_patch.service_process import die_with
from slime_patch.slime_eval.plan import SlimeEvalPlan
from slime_patch.slime_eval.scores import labels_of, numbers_of, samples_of
from slime_patch.trainer_run import LOGGED, STEP

logger = logging.getLogger(__name__)

GATEWAY_HOST = "127.0.0.1"


class Worker:
    """slime's functions, loaded once; datasets stay in slime's own cache between jobs."""

    def __init__(self, plan: SlimeEvalPlan, *, port: int) -> None:
        from slime.utils.http_utils import init_http_client  # pyright: ignore[reportMissingImports]
        from slime.utils.misc import load_function  # pyright: ignore[reportMissingImports]

        self._plan = plan
        self._args = Namespace(**plan.arguments)
        self._args.sglang_router_ip, self._args.sglang_router_port = GATEWAY_HOST, port
        self._function = load_function(plan.function)
        self._logged: dict[str, Any] = {}
        self._catch_logging()
        init_http_client(self._args)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Evaluate one dataset: what it measured, or the error that ended it."""
        try:
            return self._evaluate(**request)
        except Exception as error:  # the request handler: whatever the user's code raises is its answer
            traceback.print_exc()
            return {"error": f"{type(error).__name__}: {error}"}

    def _evaluate(
        self,
        *,
        dataset: str,
        rollout_id: int,
        samples_path: str,
        n: int,
        pass_threshold: float,
        policy_version: int | None,
        checkpoint: str,
    ) -> dict[str, Any]:
        from slime.rollout.base_types import call_rollout_fn  # pyright: ignore[reportMissingImports]

        args = self._arguments(dataset)
        result = call_rollout_fn(self._function, args, rollout_id, None, evaluation=True)
        samples = samples_of(result.data, dataset, n=n, policy_version=policy_version, checkpoint=checkpoint)
        log = SampleLog(Path(samples_path))
        for sample in samples:
            log.append(sample)
        log.close()
        log_error = self._log(args, rollout_id, result)
        logged = {
            f"{LOGGED}{name}": value for name, value in numbers_of(self._logged).items() if name != STEP
        }
        metrics = with_data(compute_metrics(samples, n=n, pass_threshold=pass_threshold))
        return {
            "counts": dict(Counter(sample.status for sample in samples)),
            "metrics": {**metrics, **logged},
            "labels": labels_of(samples),
            "first_error": next((sample.error for sample in samples if sample.error), ""),
            "log_error": log_error,
        }

    def _arguments(self, dataset: str) -> Namespace:
        from slime.utils.eval_config import EvalDatasetConfig  # pyright: ignore[reportMissingImports]

        args = Namespace(**vars(self._args))
        args.eval_datasets = [EvalDatasetConfig(**self._plan.datasets[dataset])]
        return args

    def _log(self, args: Namespace, rollout_id: int, result: Any) -> str:
        """Let slime's log function, or the user's, make its row; its error if it fails."""
        from slime.observability.rollout_metrics import (  # pyright: ignore[reportMissingImports]
            log_eval_rollout_data,
        )

        self._logged = {}
        try:
            log_eval_rollout_data(rollout_id, args, result.data, result.metrics)
        except Exception as error:  # the user's code again: the scores are there, the row is not
            traceback.print_exc()
            return f"{type(error).__name__}: {error}"
        return ""

    def _catch_logging(self) -> None:
        from slime.observability import logging_utils  # pyright: ignore[reportMissingImports]

        def log(args: Any, metrics: dict[str, Any], step_key: str) -> None:
            self._logged.update(metrics)

        logging_utils.log = log
        wandb = sys.modules.get("wandb")
        if wandb is not None:  # slime imports it; a log function of the user's may call it itself
            wandb.__dict__["log"] = lambda metrics, *rest, **named: self._logged.update(metrics)


def main(arguments: list[str]) -> int:
    """Answer until stdin closes; 1 if the parent is gone already."""
    parent, plan, port = int(arguments[0]), Path(arguments[1]), int(arguments[2])
    if not die_with(parent):
        return 1
    replies = _only_for_replies()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    worker = Worker(SlimeEvalPlan.read(plan), port=port)
    _reply(replies, {"ready": True})
    for line in sys.stdin.buffer:
        _reply(replies, worker.answer(json.loads(line)))
    return 0


def _only_for_replies() -> IO[bytes]:
    """The first stdout; from now on everything that is printed goes to stderr."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return replies


def _reply(replies: IO[bytes], reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply).encode() + b"\n")
    replies.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
