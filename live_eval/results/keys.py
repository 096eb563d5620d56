"""Names of datasets and metrics as parts of W&B keys.

A W&B key is split at "/" into panels' sections and at "." into nested fields, and a metric
definition by glob does not reach a key with a "."; so names are mapped to a small alphabet.
Invariant: two datasets never share a key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from live_eval.errors import ConfigError

_UNSAFE = re.compile(r"[^A-Za-z0-9_\-]")
_UNSAFE_METRIC = re.compile(r"[^A-Za-z0-9_\-@]")


def safe_key(name: str) -> str:
    """The name with every character that has a meaning in a key replaced by `_`; "_" if empty."""
    return _UNSAFE.sub("_", name) or "_"


def safe_metric(name: str) -> str:
    """As `safe_key`, and `@` stays: pass@1."""
    return _UNSAFE_METRIC.sub("_", name) or "_"


class DatasetKeys:
    """Maps dataset names to keys; refuses names that would share one."""

    def __init__(self, names: Iterable[str]) -> None:
        self._keys: dict[str, str] = {}
        owners: dict[str, str] = {}
        for name in names:
            key = safe_key(name)
            if key in owners:
                raise ConfigError(
                    f"datasets {owners[key]!r} and {name!r} would both be {key!r} in W&B: rename one of them"
                )
            owners[key] = name
            self._keys[name] = key

    def key(self, name: str) -> str:
        """The dataset's key. A name that was not announced (a result of an earlier configuration)
        gets a key of its own, the same one at every start."""
        if name not in self._keys:
            key = safe_key(name)
            if key in self._keys.values():
                key = f"{key}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"
            self._keys[name] = key
        return self._keys[name]

    def as_dict(self) -> dict[str, str]:
        """Key -> dataset name, for the run's config."""
        return {key: name for name, key in sorted(self._keys.items())}
