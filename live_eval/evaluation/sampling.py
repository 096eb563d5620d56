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
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    """Texts at which the answer ends; they are not part of it, unless `no_stop_trim`."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens at which the answer ends, beside the model's own."""
    no_stop_trim: bool = False
    """Leave the text or token that ended the answer in it."""
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    skip_special_tokens: bool = True
    """Leave special tokens out of the answer's text."""
    spaces_between_special_tokens: bool = True
    seed: int | None = None
    """Base seed: every sample gets its own, always the same one. None leaves it to the engine."""
    first_seed: int | None = None
    """Instead of `seed`: sample number j of every row is drawn with `first_seed` + j, as slime does."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ConfigError(f"temperature is {self.temperature}: give a number of 0 or more")
        if not 0.0 < self.top_p <= 1.0:
            raise ConfigError(f"top_p is {self.top_p}: give a number above 0 and at most 1")
        if self.top_k != -1 and self.top_k < 1:
            raise ConfigError(f"top_k is {self.top_k}: give 1 or more, or -1 for no limit")
        if self.max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens is {self.max_new_tokens}: give 1 or more")
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise ConfigError(
                f"min_new_tokens is {self.min_new_tokens}: give 0 to max_new_tokens ({self.max_new_tokens})"
            )
        if not 0.0 < self.repetition_penalty <= 2.0:
            raise ConfigError(
                f"repetition_penalty is {self.repetition_penalty}: give a number above 0, up to 2"
            )
        if isinstance(self.stop, str) or not all(isinstance(s, str) and s for s in self.stop):
            raise ConfigError(f"stop is {self.stop!r}: give a tuple of non-empty strings")
        if not all(isinstance(token, int) and token >= 0 for token in self.stop_token_ids):
            raise ConfigError(f"stop_token_ids is {self.stop_token_ids!r}: give token ids")
        if self.seed is not None and self.first_seed is not None:
            raise ConfigError("seed and first_seed are two ways to the same: give one of them")

    def for_sample(self, identity: str, *, sample: int = 0) -> dict[str, Any]:
        """A fresh dict in SGLang's names for the sample that `identity` names, number `sample` of its row.

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
        params |= self._unusual()
        if self.first_seed is not None:
            params["sampling_seed"] = self.first_seed + sample
        elif self.seed is not None:
            digest = hashlib.sha256(f"{self.seed}\n{identity}".encode()).digest()
            params["sampling_seed"] = int.from_bytes(digest[:4], "big") & _SEED_MASK
        return params

    def _unusual(self) -> dict[str, Any]:
        """What is only sent where it is not the engine's own default."""
        params: dict[str, Any] = {}
        if self.stop:
            params["stop"] = list(self.stop)
        if self.stop_token_ids:
            params["stop_token_ids"] = list(self.stop_token_ids)
        for name, usual in (
            ("min_new_tokens", 0),
            ("no_stop_trim", False),
            ("repetition_penalty", 1.0),
            ("skip_special_tokens", True),
            ("spaces_between_special_tokens", True),
        ):
            if (value := getattr(self, name)) != usual:
                params[name] = value
        return params
