"""Results as files for other programs: JSON lines, CSV and Parquet, by the file's name.

Each has the same rows. CSV and Parquet are flat: `metrics` and `partial` become a column a metric
(`metrics.score/low`), empty where a result does not have it; in CSV no text is a formula. Invariant:
the file is put in place whole, by one rename.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_eval.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow

Record = dict[str, Any]
_NESTED = ("metrics", "partial")
_WHOLE = (
    "policy_version", "train_step", "rollout_id", "attempt",
    "n_expected", "n_scored", "n_errored", "n_aborted",
)  # fmt: skip
_NUMBERS = (
    "score", "score_low", "score_high", "requested_at", "started_at", "finished_at", "duration_s",
)  # fmt: skip


def export(records: Sequence[Record], path: Path) -> None:
    """Write the records of results; ConfigError for a name of no known kind or a place that takes no file."""
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise ConfigError(f"{path.name}: give a name that ends in {', '.join(_WRITERS)}")
    try:
        _write_whole(lambda partial: write(records, partial), path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}; give another file") from error


def _write_whole(write: Callable[[Path], None], path: Path) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        with partial.open("rb") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def flat(record: Record) -> Record:
    """The record without nesting; lists as their items joined by a space."""
    row: Record = {}
    for name, value in record.items():
        if name in _NESTED:
            row |= {f"{name}.{key}": number for key, number in sorted(value.items())}
        elif isinstance(value, list):
            row[name] = " ".join(map(str, value))
        else:
            row[name] = value
    return row


def _table(records: Sequence[Record]) -> tuple[list[str], list[Record]]:
    """Columns, those of every record first, and rows."""
    rows = [flat(record) for record in records]
    columns = dict.fromkeys(name for row in rows for name in row if not name.startswith(_DOTTED))
    metrics = sorted({name for row in rows for name in row if name.startswith(_DOTTED)})
    return [*columns, *metrics], rows


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_DOTTED = tuple(f"{name}." for name in _NESTED)


def _write_jsonl(records: Sequence[Record], path: Path) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(record, allow_nan=False) + "\n" for record in records)


def _write_csv(records: Sequence[Record], path: Path) -> None:
    columns, rows = _table(records)
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, columns, restval="")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    """Text that a spreadsheet would take for a formula gets an apostrophe, as people write it there."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _write_parquet(records: Sequence[Record], path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError("Parquet needs pyarrow: pip install 'live-eval[eval]'") from error
    columns, rows = _table(records)
    arrays = [pyarrow.array([row.get(name) for row in rows], type=_type(name, pyarrow)) for name in columns]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, names=columns), path)


def _type(name: str, arrow: Any) -> pyarrow.DataType:
    if name.startswith(_DOTTED) or name in _NUMBERS:
        return arrow.float64()
    return arrow.int64() if name in _WHOLE else arrow.string()


_WRITERS: dict[str, Callable[[Sequence[Record], Path], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
