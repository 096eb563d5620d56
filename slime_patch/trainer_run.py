"""live-eval's results in the trainer's own W&B run and TensorBoard, written by the driver.

The driver is the run's primary writer, so nobody else has to join it. Two kinds of rows:

    eval/<dataset>, eval/step, ...   as slime's own eval logs them, so dashboards that people have stay filled
    live_eval/* by policy version    with --eval-wandb-run attach, instead of a run of live-eval's own

Invariant: `eval/step` is slime's: the rollout after whose training the weights were sent, 0 for the
first push. A row is written when its result comes, so steps may come out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from live_eval.reasons import JobStatus
from live_eval.results.keys import DatasetKeys
from live_eval.results.wandb_rows import DEFINITIONS, WandbRows

if TYPE_CHECKING:
    from argparse import Namespace

    from live_eval.results.rows import OutboxRow
    from protocol.messages import JobResult

LOGGED = "slime/"
"""Begins the names of metrics that slime's own log function has made."""
STEP = "eval/step"


class TrainerRun:
    """Turns outbox rows, in their order, into rows of the trainer's run."""

    def __init__(
        self,
        args: Namespace,
        *,
        datasets: Sequence[str],
        attach: bool,
        known: int,
        log: Callable[[Namespace, dict[str, Any]], None] | None = None,
    ) -> None:
        """Rows up to `known` were there before this training began, and are in another run."""
        self._args = args
        self._known = known
        self._log = log or log_by_slime
        self._attached = WandbRows(DatasetKeys(datasets)) if attach else None
        self._defined = False

    def take(self, row: OutboxRow) -> None:
        """Log one row; raises whatever W&B raises."""
        ours = self._attached.add(row) if self._attached is not None else None
        if row.seq <= self._known:
            return
        theirs = eval_row(self._args, row.result) if row.result is not None else None
        if theirs is not None:
            self._log(self._args, theirs)
        if ours is not None:
            self._log_attached(ours)

    def _log_attached(self, row: dict[str, Any]) -> None:
        import wandb

        assert self._attached is not None
        if wandb.run is None:
            return
        if not self._defined:
            self._defined = True
            for each in DEFINITIONS:
                wandb.define_metric(
                    each.name, step_metric=each.step_metric or None, hidden=each.hidden or None
                )
        wandb.log(row)
        wandb.run.summary.update(self._attached.summary())


def eval_row(args: Namespace, result: JobResult) -> dict[str, float] | None:
    """The keys that slime's eval would have logged; None for checkpoints and for what gave no score."""
    if result.policy_version is None or result.status != JobStatus.SUCCEEDED or result.score is None:
        return None
    key = f"eval/{result.dataset}"
    row = {STEP: eval_step(args, result.rollout_id), key: result.score}
    row[f"{key}/policy_version"] = result.policy_version
    logged = {name.removeprefix(LOGGED): value for name, value in result.metrics.items() if _is_slimes(name)}
    if logged:
        return {**row, **logged}
    metrics = result.metrics
    if (truncated := metrics.get("truncated")) is not None:
        row[f"{key}-truncated_ratio"] = row[f"{key}/truncated_ratio"] = truncated
    if (length := metrics.get("response_tokens")) is not None:
        row[f"{key}/response_len/mean"] = length
    if getattr(args, "log_passrate", False):
        row.update({f"{key}-{name}": value for name, value in metrics.items() if name.startswith("pass@")})
    return row


def eval_step(args: Namespace, rollout_id: int | None) -> int:
    """slime's compute_rollout_step."""
    rollout_id = rollout_id or 0
    if getattr(args, "wandb_always_use_train_step", False):
        return rollout_id * args.rollout_batch_size * args.n_samples_per_prompt // args.global_batch_size
    return rollout_id


def log_by_slime(args: Namespace, row: dict[str, Any]) -> None:
    """W&B and TensorBoard, as slime has them."""
    from slime.observability import logging_utils  # pyright: ignore[reportMissingImports]

    logging_utils.log(args, row, step_key=STEP)


def _is_slimes(name: str) -> bool:
    return name.startswith(LOGGED)
