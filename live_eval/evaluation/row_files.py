"""Files of rows: JSON lines and Parquet, also compressed with gzip, whole or a slice.

Owns how bytes become rows. JSON lines are split at `\\n` only; a byte order mark, CRLF ends and blank
lines are accepted; any other oddity is a DatasetError with file and line, so that a set is never
smaller than its file. Knows nothing of what a row's fields mean.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from live_eval.errors import DatasetError

Row = tuple[int, dict[str, Any]]
"""1 for the file's first line or row, and its fields."""

_SLICED = re.compile(r"^(?P<path>.*)@\[(?P<start>-?\d*):(?P<stop>-?\d*)\]$", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFile:
    """A file as it was read."""

    path: Path
    """Without the slice."""
    sha256: str
    """Of the file's bytes as they lie on the disk."""
    rows: Iterator[Row]


def split_path(path: Path) -> tuple[Path, slice]:
    """`file.jsonl@[2:5]` -> the file and its slice, whose bounds may be negative; else all rows."""
    match = _SLICED.match(str(path))
    if match is None:
        return path, slice(None)
    start, stop = (int(match[name]) if match[name] else None for name in ("start", "stop"))
    return Path(match["path"]), slice(start, stop)


def read_rows(path: Path) -> RowFile:
    """Open the file; rows are read, and faults found, as they are taken. DatasetError if it cannot be."""
    real, rows = split_path(path)
    try:
        data = real.read_bytes()
    except (OSError, ValueError) as error:  # a path with a null character is no path
        raise DatasetError(f"cannot read {str(real)!r}: {error}") from error
    sha256 = hashlib.sha256(data).hexdigest()
    name = real.name.lower()
    if name.endswith(".gz"):
        name = name.removesuffix(".gz")
        data = _unpacked(data, real)
    found = _parquet(data, real) if name.endswith(".parquet") else _json_lines(data, real)
    return RowFile(path=real, sha256=sha256, rows=_sliced(found, rows))


def _sliced(rows: Iterator[Row], part: slice) -> Iterator[Row]:
    if any(bound is not None and bound < 0 for bound in (part.start, part.stop)):
        return iter(list(rows)[part])
    return itertools.islice(rows, part.start, part.stop)


def _bad(path: Path, line: int, problem: str) -> NoReturn:
    raise DatasetError(f"{path}:{line}: {problem}")


def _unpacked(data: bytes, path: Path) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} is no whole gzip file: {error}") from error


# --- JSON lines -------------------------------------------------------------------------------


def _json_lines(data: bytes, path: Path) -> Iterator[Row]:
    data = data.removeprefix(b"\xef\xbb\xbf")
    for line, raw in enumerate(data.split(b"\n"), start=1):
        try:
            text = raw.decode("utf-8").strip(" \t\r")
        except UnicodeDecodeError as error:
            _bad(path, line, f"not UTF-8: {error.reason} at byte {error.start} of the line")
        if text:
            yield line, _parse(text, path, line)


def _parse(text: str, path: Path, line: int) -> dict[str, Any]:
    try:
        row = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        _bad(path, line, "half of a surrogate pair, which is no text")
    except (ValueError, RecursionError) as error:
        _bad(path, line, f"not a JSON value: {error}")
    if not isinstance(row, dict):
        _bad(path, line, f"a JSON object is needed, this is a {type(row).__name__}")
    return row


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse_constant(text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


# --- Parquet ----------------------------------------------------------------------------------


def _parquet(data: bytes, path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DatasetError(f"{path}: Parquet needs pyarrow: pip install 'live-eval[eval]'") from error
    try:
        file = pyarrow.parquet.ParquetFile(io.BytesIO(data))
        batches = (batch.to_pylist() for batch in file.iter_batches())
        for line, row in enumerate(itertools.chain.from_iterable(batches), start=1):
            yield line, {name: _plain(value, path, line) for name, value in row.items()}
    except (pyarrow.ArrowException, OSError) as error:
        raise DatasetError(f"{path} is no whole Parquet file: {error}") from error
    except (ValueError, OverflowError) as error:  # a text that is no UTF-8, a date beyond the calendar
        raise DatasetError(f"{path}: holds a value that cannot be read: {error}") from error


def _plain(value: Any, path: Path, line: int) -> Any:
    """The value as JSON has it: times as ISO text, whole decimals as integers, NaN (missing) as null."""
    match value:
        case dict():
            return {str(key): _plain(part, path, line) for key, part in value.items()}
        case list() if value and all(isinstance(part, tuple) for part in value):  # a map
            return {str(key): _plain(part, path, line) for key, part in value}
        case list():
            return [_plain(part, path, line) for part in value]
        case float():
            return value if math.isfinite(value) else None
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case str() | int() | None:
            return value
    _bad(path, line, f"holds a {type(value).__name__}, which is no JSON value (only text is evaluated)")
