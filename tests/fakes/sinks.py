"""Sinks that remember, fail or hang, as a test tells them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from live_eval.results.reader import LedgerReader
    from live_eval.results.rows import OutboxRow


class MemorySink:
    """Keeps the keys of the rows it took; fails the first `num_failures` writes, after taking one row."""

    def __init__(self, name: str = "memory", *, num_failures: int = 0, from_cursor: bool = True) -> None:
        self.name = name
        self.keys: list[str] = []
        self.num_opened = 0
        self.num_closed = 0
        self._failures_left = num_failures
        self._from_cursor = from_cursor

    def open(self, ledger: LedgerReader) -> int:
        self.num_opened += 1
        return ledger.cursor(self.name) if self._from_cursor else 0

    def write(self, rows: Sequence[OutboxRow]) -> None:
        if self._failures_left:
            self._failures_left -= 1
            self.keys.append(rows[0].key)
            raise RuntimeError("the sink broke on purpose")
        self.keys.extend(row.key for row in rows)

    def close(self, *, timeout_s: float) -> None:
        self.num_closed += 1

    def abandon(self) -> None:
        """It is never busy."""


class StuckSink:
    """Hangs in `open` until it is abandoned, or for good with `deaf` until the test releases it."""

    name = "stuck"

    def __init__(self, *, deaf: bool = False) -> None:
        self._deaf = deaf
        self.entered = threading.Event()
        self.release = threading.Event()

    def open(self, ledger: LedgerReader) -> int:
        self.entered.set()
        self.release.wait()
        return 0

    def write(self, rows: Sequence[OutboxRow]) -> None:
        """Released, it takes everything."""

    def close(self, *, timeout_s: float) -> None:
        """Nothing is open."""

    def abandon(self) -> None:
        if not self._deaf:
            self.release.set()
