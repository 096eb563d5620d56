"""A driver with a W&B run of its own, as slime's: `python wandb_trainer.py DIR RUN_ID`, offline.

Its run is told of two syncs that were sealed, one that was given up, and two scores.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(folder: str, run_id: str) -> None:
    import wandb

    from live_eval.results.rows import OutboxRow, VersionEvent
    from protocol.messages import JobResult
    from slime_patch.trainer_run import TrainerRun

    settings = wandb.Settings(silent=True)
    wandb.init(project="p", id=run_id, dir=folder, mode="offline", settings=settings)
    for prefix in ("rollout", "eval"):  # as slime defines them
        wandb.define_metric(f"{prefix}/step")
        wandb.define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")
    args = Namespace(use_wandb=True, wandb_always_use_train_step=False)
    run = TrainerRun(
        args, datasets=["aime"], attach=True, known=0, log=lambda _args, row, _step: wandb.log(row)
    )
    events = [
        VersionEvent(key="a", state="sealed", policy_version=1, weight_version=1, held_s=0.5, at=1.0),
        VersionEvent(
            key="b",
            state="discarded",
            reason="publisher_deadline",
            weight_version=2,
            rollout_id=0,
            held_s=5.0,
        ),
        VersionEvent(
            key="c", state="sealed", policy_version=3, weight_version=3, rollout_id=1, held_s=0.25, at=3.0
        ),
    ]
    for seq, event in enumerate(events):
        run.take(OutboxRow(seq=2 * seq + 1, key=event.key, event=event))
        if event.policy_version is not None:
            version = event.policy_version
            result = JobResult(
                result_id=f"r/v{version}",
                job_id=f"v{version}/aime",
                dataset="aime",
                status="succeeded",
                policy_version=version,
                rollout_id=event.rollout_id,
                score=version / 4,
                finished_at=10.0,
            )
            run.take(OutboxRow(seq=2 * seq + 2, key=result.result_id, result=result))
    wandb.finish()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main(*sys.argv[1:])
