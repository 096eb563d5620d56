"""How long each sync held the trainer, from the records that a trainer leaves in the run directory.

A trainer that writes `trainer.jsonl` (one JSON object a sync, with `weight_version` and `held_s`) is read
as far as it has come; one that writes none is known to nobody here.
"""

from __future__ import annotations

import json
from pathlib import Path


class HeldTimes:
    """Reads the file on, at each question."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self._held: dict[int, float] = {}
        self._total_s: float | None = None

    def of(self, weight_version: int) -> float | None:
        """Seconds for which the newest sync of this weight version held the trainer; None if unknown."""
        self._read_on()
        return self._held.get(weight_version)

    def total(self) -> float | None:
        """Seconds for which all syncs together held the trainer; None if nothing says so."""
        self._read_on()
        return self._total_s

    def _read_on(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            try:
                record = json.loads(line)
                held_s = float(record["held_s"])
                self._total_s = (self._total_s or 0.0) + held_s
                self._held[int(record["weight_version"])] = held_s
            except (ValueError, KeyError, TypeError):
                continue  # another trainer's words
