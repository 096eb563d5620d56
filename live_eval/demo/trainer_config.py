"""What the trainer process is told: one JSON file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig:
    """Everything the trainer process needs to know."""

    run_id: str
    run_dir: str
    base: str
    num_versions: int
    steps_per_round: int
    seed: int
    transport: Literal["nccl", "ray"]
    receiver: str
    """Socket of the facade (nccl), or name of the receiver's Ray actor (ray)."""
    ray_address: str = ""
    ray_namespace: str = ""
    rollout_engine: str = ""
    """Address of an SGLang server that takes part in the broadcast (nccl), or empty."""
    deadline_s: float = 10.0
    """Longest time that a sync may hold the trainer beyond one copy of the weights."""
