"""What can be evaluated: a policy version of the store, or a checkpoint that a user named."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyTarget:
    """A sealed policy version."""

    policy_version: int
    incarnation: int = 1
    weight_version: int = 0
    rollout_id: int | None = None
    train_step: int | None = None

    @property
    def key(self) -> str:
        """Short unique name, used in job ids: `v7`."""
        return f"v{self.policy_version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointTarget:
    """A Hugging Face checkpoint directory, named by a user."""

    path: str
    """Absolute path of the directory."""
    number: int
    """1, 2, ... in the order of submission; makes the key unique when one path is asked for twice."""
    train_step: int | None = None
    """Step parsed from the directory's name where it has one."""

    @property
    def key(self) -> str:
        """Short unique name, used in job ids: `c1`."""
        return f"c{self.number}"


Target = PolicyTarget | CheckpointTarget


def job_id(target: Target, dataset: str) -> str:
    """Name of the job that evaluates `target` on `dataset`: `v7/rev`."""
    return f"{target.key}/{dataset}"
