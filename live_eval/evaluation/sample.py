"""The record of one sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

SampleStatus = Literal["scored", "errored", "aborted"]
LARGEST_REWARD = 1e100
"""Beyond it no variance can be computed; nobody means such a number as a score."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One sample in its final state; (dataset, row_id, sample) is unique within a job."""

    dataset: str
    row_id: str
    sample: int
    """0, 1, ... n-1 of its row."""
    attempt: int
    """1 for the first time it was asked; more after engines that died. 0: it was never asked."""
    prompt: str
    label: Any
    response: str | None = None
    """None where there was no answer."""
    reward: float | None = None
    """None unless scored."""
    rewards: dict[str, float] = field(default_factory=dict)
    """All numbers of a reward function that returns a dict."""
    status: SampleStatus
    error: str = ""
    """Why it was not scored."""
    finish_reason: str = ""
    num_tokens: int = 0
    """Generated tokens."""
    engine: str = ""
    engine_label: str = ""
    """The weight label that the engine put on the answer."""
    policy_version: int | None = None
    checkpoint: str = ""
    request_id: str = ""
    run: int = 1
    """Attempt of the job in which it was made; a later attempt takes it up as it is."""
    basis: str = ""
    """Names the weights, the rows and the settings that it was made with; empty where nobody can say."""
