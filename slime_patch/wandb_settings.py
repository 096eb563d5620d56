"""slime's W&B arguments as those of live-eval's own run."""

from __future__ import annotations

import os
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from live_eval.results.wandb_sink import WandbConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class WandbSettings:
    """Where the trainer's run is, so that live-eval's stands beside it."""

    project: str
    group: str | None
    """As the user gave it; slime adds a suffix to it when it starts its run."""
    entity: str | None
    mode: Literal["offline", "online"]
    sample_rows: int = 0
    """Samples of each scored eval in a table."""
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    """For the process that writes: key and host."""

    def config(self, run_dir: Path, *, group: str | None, shown: dict[str, Any]) -> WandbConfig:
        """The sink's configuration; `group` is the trainer's real one where it is known."""
        group = group or self.group
        return WandbConfig(
            dir=run_dir,
            project=self.project,
            group=group,
            entity=self.entity,
            name=f"{group or self.project}-live-eval",
            mode=self.mode,
            config=shown,
            sample_rows=self.sample_rows,
            alerts=(),  # the driver's, as --eval-on-failure says
        )


def wandb_settings(args: Namespace) -> WandbSettings | None:
    """None where slime does not use W&B."""
    mode = args.wandb_mode or os.environ.get("WANDB_MODE") or "online"
    if not args.use_wandb or mode == "disabled":
        return None
    environment = {"WANDB_API_KEY": args.wandb_key, "WANDB_BASE_URL": args.wandb_host}
    return WandbSettings(
        project=args.wandb_project or "slime",
        group=args.wandb_group,
        entity=args.wandb_team,
        mode="offline" if mode == "offline" else "online",
        sample_rows=args.eval_wandb_samples,
        environment={name: value for name, value in environment.items() if value},
    )
