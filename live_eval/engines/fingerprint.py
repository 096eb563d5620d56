"""The fingerprint of what an engine holds: log-probs that it gives to fixed tokens.

Pure: knows vectors, not engines. Invariant: one version on one flavour of engine has one
fingerprint, within the tolerance of its dtype, at every load and after every restart.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping

from live_eval.errors import ConfigError

Vector = tuple[float, ...]
"""Log-probs of the fixed tokens but the first, in order."""

REVISION = 1
"""Part of every book key: raise it when the tokens or their number change."""
NUM_TOKENS = 32
"""One short forward: every weight but the embeddings of other tokens takes part in it."""
SEED = 20_250_801

TOLERANCES: dict[str, float] = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.05}
"""Largest difference of one log-prob, in nats, between two loads of one version, by engine dtype.

On a CPU two loads agree to the last bit in float32. Other batches and kernels move float32 by
1e-6 and half precision by up to 0.04, while two models that were trained apart differ by 0.8 to 9.
"""
DEFAULT_TOLERANCE = 0.05
"""For quantized and other dtypes, whose activations are half precision."""


def tolerance(dtype: str) -> float:
    """The tolerance of an engine that computes in `dtype` (torch's name without `torch.`)."""
    return TOLERANCES.get(dtype, DEFAULT_TOLERANCE)


def token_ids(vocab_size: int) -> tuple[int, ...]:
    """The fixed tokens for a vocabulary; the same on every machine.

    They keep out of the last tenth of the vocabulary, where models have their special tokens.
    """
    if vocab_size < 16:
        raise ConfigError(f"a vocabulary of {vocab_size} tokens is too small to take a fingerprint")
    numbers = random.Random(SEED)
    return tuple(numbers.randrange(3, vocab_size * 9 // 10) for _ in range(NUM_TOKENS))


def is_finite(vector: Vector) -> bool:
    """Whether the fingerprint is a fingerprint: not empty, no NaN, no infinity."""
    return bool(vector) and all(math.isfinite(value) for value in vector)


def distance(a: Vector, b: Vector) -> float:
    """Largest difference of one log-prob; infinite where the two cannot be compared."""
    if len(a) != len(b) or not is_finite(a) or not is_finite(b):
        return math.inf
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


class FingerprintBook:
    """What each version's fingerprint was when it was first loaded, by version digest and flavour.

    The caller keeps it across restarts: `entries` is what was kept, `on_add` is told each new one.
    """

    def __init__(
        self,
        entries: Mapping[str, Vector] | None = None,
        *,
        on_add: Callable[[str, Vector], None] | None = None,
        checksums: Mapping[str, str] | None = None,
        on_checksum: Callable[[str, str], None] | None = None,
    ) -> None:
        """`checksums`, `on_checksum`: the same for the servers' own checksums."""
        self._entries = {key: tuple(vector) for key, vector in (entries or {}).items()}
        self._on_add = on_add
        self._checksums = dict(checksums or {})
        self._on_checksum = on_checksum

    @staticmethod
    def key(digest: str, flavour: str) -> str:
        """Name of an entry: `<version digest>/<flavour>/r<revision>`."""
        return f"{digest}/{flavour}/r{REVISION}"

    def get(self, digest: str, flavour: str) -> Vector | None:
        """The fingerprint of an earlier load, if there was one. A target without digest has none."""
        return self._entries.get(self.key(digest, flavour)) if digest else None

    def add(self, digest: str, flavour: str, vector: Vector) -> None:
        """Note the fingerprint of a first load; a later one never replaces it."""
        key = self.key(digest, flavour)
        if not digest or key in self._entries:
            return
        self._entries[key] = vector
        if self._on_add is not None:
            self._on_add(key, vector)

    def checksum(self, digest: str, flavour: str) -> str:
        """The server's own checksum after an earlier load; empty where none was taken."""
        return self._checksums.get(self.key(digest, flavour), "") if digest else ""

    def add_checksum(self, digest: str, flavour: str, checksum: str) -> None:
        """Note the checksum of a first load; a later one never replaces it."""
        key = self.key(digest, flavour)
        if not digest or not checksum or key in self._checksums:
            return
        self._checksums[key] = checksum
        if self._on_checksum is not None:
            self._on_checksum(key, checksum)

    def entries(self) -> dict[str, Vector]:
        """All entries, for whoever keeps them."""
        return dict(self._entries)
