"""Reading what wandb wrote: metric definitions, history rows and summary of a run, from its files.

wandb 0.31 has no reader of its own for Python. A file is a log in LevelDB's format (blocks of
32 KiB; records of 7 bytes of header and data, split over blocks where needed) of protocol buffer
records, for which wandb has the classes. A run that was continued has one directory a life.

Invariant: a file whose tail was lost or torn by a kill gives the records before it, never an error;
bytes that are wrong in the middle end the reading of that file, with a warning.
"""

from __future__ import annotations

import json
import logging
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)

_BLOCK = 32768
_FILE_HEADER = b":W&B\xe1\xbe\x00"
_RECORD_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4

FAMILIES = ("live_eval", "checkpoint_eval", "checkpoint_eval_by_number")


@dataclass(frozen=True, kw_only=True, slots=True)
class DefinedMetric:
    """A define_metric call; exactly one of `name` and `glob` is set."""

    name: str = ""
    glob: str = ""
    step_metric: str = ""
    hidden: bool = False

    def covers(self, key: str) -> bool:
        """Whether the definition is of this key."""
        if self.glob:
            return key.startswith(self.glob.removesuffix("*"))
        return key == self.name


@dataclass(slots=True)
class ReadRun:
    """All lives of one run together, in the order of their start."""

    run_id: str
    directories: list[Path] = field(default_factory=list)
    project: str = ""
    group: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    metrics: list[DefinedMetric] = field(default_factory=list)
    """Without repeats."""
    rows: list[dict[str, Any]] = field(default_factory=list)
    """History rows, each with all its keys."""
    summary: dict[str, Any] = field(default_factory=dict)
    alerts: list[dict[str, str]] = field(default_factory=list)
    """Title, text and level of each."""

    def step_metric(self, key: str) -> str:
        """What the key is drawn against: the exact definition, else the first glob, else ''."""
        for exact in (True, False):
            for metric in self.metrics:
                if bool(metric.name) is exact and metric.covers(key):
                    return metric.step_metric
        return ""


def run_directories(folder: Path, run_id: str) -> list[Path]:
    """The run's directories in wandb's folder, oldest life first.

    A directory is named by the second of its start; a further one of that second gets a number.
    """
    pattern = re.compile(rf"(?:offline-)?run-(\d+_\d+)-{re.escape(run_id)}(?:-(\d+))?")
    found: list[tuple[str, int, Path]] = []
    for directory in folder.glob(f"*run-*-{run_id}*"):
        match = pattern.fullmatch(directory.name)
        if match is not None and directory.is_dir():
            found.append((match[1], int(match[2] or 0), directory))
    return [directory for _, _, directory in sorted(found)]


def read_run(folder: Path, run_id: str) -> ReadRun:
    """Everything that is in the run's files below wandb's `folder`; an empty run if there are none."""
    run = ReadRun(run_id=run_id, directories=run_directories(folder, run_id))
    for directory in run.directories:
        path = directory / f"run-{run_id}.wandb"
        if path.is_file():
            _read_into(run, path)
    return run


def result_ids(rows: Iterable[dict[str, Any]]) -> list[str]:
    """The result that each row is of, in order; rows of nothing are left out."""
    names = [row.get(f"{family}/result_id") for row in rows for family in FAMILIES]
    return [name for name in names if name is not None]


def records(data: bytes) -> Iterator[bytes]:
    """The records of a file's bytes, up to the first that is incomplete or wrong."""
    if len(data) < len(_FILE_HEADER):
        return
    if data[: len(_FILE_HEADER)] != _FILE_HEADER:
        _log.warning("not a wandb file: it begins with %r", data[: len(_FILE_HEADER)])
        return
    position = len(_FILE_HEADER)
    parts: list[bytes] = []
    while True:
        left = _BLOCK - position % _BLOCK
        if left < _RECORD_HEADER.size:
            position += left
            continue
        if position + _RECORD_HEADER.size > len(data):
            return
        checksum, size, kind = _RECORD_HEADER.unpack_from(data, position)
        start = position + _RECORD_HEADER.size
        part = data[start : start + size]
        if len(part) < size or (checksum, size, kind) == (0, 0, 0):
            return
        if zlib.crc32(part, zlib.crc32(bytes([kind]))) != checksum:
            _log.warning("a wandb file is damaged at byte %d; what follows is not read", position)
            return
        position = start + size
        if kind in (_FULL, _FIRST):
            parts = []
        parts.append(part)
        if kind in (_FULL, _LAST):
            yield b"".join(parts)


def _read_into(run: ReadRun, path: Path) -> None:
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2

    # The class is made at run time, by the installed protobuf's version of the module.
    new_record = wandb_internal_pb2.__dict__["Record"]
    for data in records(path.read_bytes()):
        record = new_record()
        try:
            record.ParseFromString(data)
        except DecodeError:
            _log.warning("%s has a record that is not wandb's; what follows is not read", path)
            return
        kind = record.WhichOneof("record_type")
        if kind == "history":
            run.rows.append({_key(item): json.loads(item.value_json) for item in record.history.item})
        elif kind == "metric":
            _add_metric(run, record.metric)
        elif kind == "summary":
            _apply(run.summary, record.summary)
        elif kind == "alert":
            run.alerts.append({name: getattr(record.alert, name) for name in ("title", "text", "level")})
        elif kind == "config":
            _apply(run.config, record.config)
        elif kind == "run":
            run.project, run.group = record.run.project, record.run.run_group
            _apply(run.config, record.run.config)


def _add_metric(run: ReadRun, record: Any) -> None:
    metric = DefinedMetric(
        name=record.name,
        glob=record.glob_name,
        step_metric=record.step_metric,
        hidden=record.options.hidden,
    )
    if metric not in run.metrics:
        run.metrics.append(metric)


def _apply(values: dict[str, Any], record: Any) -> None:
    for item in record.update:
        values[_key(item)] = json.loads(item.value_json)
    for item in record.remove:
        values.pop(_key(item), None)


def _key(item: Any) -> str:
    names: Sequence[str] = item.nested_key
    return ".".join(names) if names else item.key
