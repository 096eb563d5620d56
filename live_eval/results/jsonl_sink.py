"""results.jsonl: one JSON object a result, in the order in which they became durable.

Owns the file. At each start it is written anew from the ledger and put in place by one rename, then
appended to; so a torn last line, a lost tail or an edit heals, and no result is there twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.results.records import result_record
from live_eval.results.sinks import BATCH

if TYPE_CHECKING:
    from live_eval.results.reader import LedgerReader
    from live_eval.results.rows import OutboxRow


class JsonlSink:
    """Keeps `path` equal to the ledger's results."""

    name = "jsonl"

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, ledger: LedgerReader) -> int:
        """Write the file anew; the seq of the newest row in it."""
        seq, _ = _rewrite(ledger, self._path)
        return seq

    def write(self, rows: Sequence[OutboxRow]) -> None:
        """Append the results among `rows`, and wait for the disk."""
        with self._path.open("a", encoding="utf-8") as out:
            out.writelines(_lines(rows))
            out.flush()
            os.fsync(out.fileno())

    def close(self, *, timeout_s: float) -> None:
        """Nothing is held open between writes."""

    def abandon(self) -> None:
        """A write to a local file ends by itself."""


def _rewrite(ledger: LedgerReader, path: Path) -> tuple[int, int]:
    """All results of the ledger to `path`; the last seq and the number of results."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    seq = num_results = 0
    try:
        with partial.open("w", encoding="utf-8") as out:
            while rows := ledger.outbox(after=seq, limit=BATCH):
                lines = list(_lines(rows))
                out.writelines(lines)
                num_results += len(lines)
                seq = rows[-1].seq
            out.flush()
            os.fsync(out.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return seq, num_results


def _lines(rows: Iterable[OutboxRow]) -> Iterable[str]:
    for row in rows:
        if row.result is not None:
            yield json.dumps(result_record(row.result, attempt=row.attempt), allow_nan=False) + "\n"
