"""How an eval set is sampled.

Owns the sampling parameters of evaluations. They have no defaults in common with, and are
never derived from, what a trainer's rollouts use: temperature 0 is right here.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from live_eval.errors import ConfigError

_SEED_MASK = 0x7FFFFFFF


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """Sampling of one dataset; ConfigError at construction if a value is out of range."""

    temperature: float = 0.0
    """0 is greedy decoding."""
    top_p: float = 1.0
    top_k: int = -1
    """-1 means no limit."""
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    """Texts at which the answer ends; they are not part of it."""
    ignore_eos: bool = False
    seed: int | None = None
    """Base seed: every sample gets its own, always the same one. None leaves it to the engine."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ConfigError(f"temperature is {self.temperature}: give a number of 0 or more")
        if not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"top_p is {self.top_p}: give a number above 0 and at most 1")
        if self.top_k != -1 and self.top_k < 1:
            raise ConfigError(f"top_k is {self.top_k}: give 1 or more, or -1 for no limit")
        if self.max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens is {self.max_new_tokens}: give 1 or more")
        if isinstance(self.stop, str) or not all(isinstance(s, str) and s for s in self.stop):
            raise ConfigError(f"stop is {self.stop!r}: give a tuple of non-empty strings")

    def for_sample(self, identity: str) -> dict[str, Any]:
        """A fresh dict in SGLang's names for the sample that `identity` names.

        The same identity gets the same seed each time, so a sample that is asked again after
        an engine died is drawn again, and different samples of one row differ.
        """
        params: dict[str, Any] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "max_new_tokens": self.max_new_tokens,
            "ignore_eos": self.ignore_eos,
        }
        if self.stop:
            params["stop"] = list(self.stop)
        if self.seed is not None:
            digest = hashlib.sha256(f"{self.seed}\n{identity}".encode()).digest()
            params["sampling_seed"] = int.from_bytes(digest[:4], "big") & _SEED_MASK
        return params
