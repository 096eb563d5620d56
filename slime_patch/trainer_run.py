"""live-eval's results in the trainer's own W&B run and TensorBoard, written by the driver.

The driver is the run's primary writer, so nobody else has to join it. Three kinds of rows:

    eval/<dataset>, eval/step, ...   as slime's own eval logs them, so dashboards that people have stay filled
    live_eval/held_s, rollout/step   what a weight update cost the trainer, and how many were sealed and
    live_eval/sealed, .../discarded  discarded until then
    live_eval/* by policy version    with --eval-wandb-run attach, instead of a run of live-eval's own

Invariant: `eval/step` and `rollout/step` are slime's: the rollout after whose training the weights were
sent, 0 for the first push. A row is written when its news comes, so steps may come out of order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from live_eval.reasons import JobStatus
from live_eval.results.keys import DatasetKeys
from live_eval.results.wandb_rows import DEFINITIONS, WandbRows

if TYPE_CHECKING:
    from argparse import Namespace

    from live_eval.results.rows import OutboxRow, VersionEvent
    from protocol.messages import JobResult

LOGGED = "slime/"
"""Begins the names of metrics that slime's own log function has made."""
STEP = "eval/step"
SYNC_STEP = "rollout/step"
HELD = "live_eval/held_s"
DISCARDED = "live_eval/discarded"

Log = Callable[["Namespace", dict[str, Any], str], None]
"""slime's arguments, a row, and the key of its step."""


class TrainerRun:
    """Turns outbox rows, in their order, into rows of the trainer's run."""

    def __init__(
        self,
        args: Namespace,
        *,
        datasets: Sequence[str],
        attach: bool,
        known: int,
        log: Log | None = None,
    ) -> None:
        """Rows up to `known` were there before this training began, and are in another run."""
        self._args = args
        self._known = known
        self._log = log or log_by_slime
        self._attached = WandbRows(DatasetKeys(datasets)) if attach else None
        self._syncs = SyncRows(args)
        self._defined: set[str] = set()

    def take(self, row: OutboxRow) -> None:
        """Log one row; raises whatever W&B raises."""
        ours = self._attached.add(row) if self._attached is not None else None
        if row.seq <= self._known:
            return
        theirs = eval_row(self._args, row.result) if row.result is not None else None
        if theirs is not None:
            self._log(self._args, theirs, STEP)
        sync = self._syncs.add(row.event) if row.event is not None else None
        if sync is not None:
            self._define(sync)
            self._log(self._args, sync, SYNC_STEP)
        if ours is not None:
            self._log_attached(ours)

    def _log_attached(self, row: dict[str, Any]) -> None:
        import wandb

        assert self._attached is not None
        if wandb.run is None:
            return
        for each in DEFINITIONS:
            if each.name not in self._defined:
                self._defined.add(each.name)
                wandb.define_metric(
                    each.name, step_metric=each.step_metric or None, hidden=each.hidden or None
                )
        wandb.log({key: value for key, value in row.items() if key != HELD})  # the sync's own row has it
        wandb.run.summary.update(self._attached.summary())

    def _define(self, row: dict[str, float]) -> None:
        """By their whole names, which count more than live_eval/* for a run that is attached to."""
        if not getattr(self._args, "use_wandb", False):
            return
        import wandb

        for name in row.keys() - self._defined - {SYNC_STEP}:
            self._defined.add(name)
            if wandb.run is not None:
                wandb.define_metric(name, step_metric=SYNC_STEP)


class SyncRows:
    """What became of weight updates, one row each, with counts since this training began."""

    def __init__(self, args: Namespace) -> None:
        self._args = args
        self._num_sealed = 0
        self._reasons: Counter[str] = Counter()

    def add(self, event: VersionEvent) -> dict[str, float] | None:
        """The row; None for what is no end of an update."""
        if event.state == "sealed":
            self._num_sealed += 1
        elif event.state == "discarded":
            self._reasons[event.reason] += 1
        else:
            return None
        row: dict[str, float] = {SYNC_STEP: eval_step(self._args, event.rollout_id)}
        if event.held_s is not None:
            row[HELD] = event.held_s
        row |= {"live_eval/sealed": self._num_sealed, DISCARDED: self._reasons.total()}
        return row | {f"{DISCARDED}/{reason}": number for reason, number in sorted(self._reasons.items())}


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


def log_by_slime(args: Namespace, row: dict[str, Any], step_key: str) -> None:
    """W&B and TensorBoard, as slime has them."""
    from slime.observability import logging_utils  # pyright: ignore[reportMissingImports]

    logging_utils.log(args, row, step_key=step_key)


def _is_slimes(name: str) -> bool:
    return name.startswith(LOGGED)
