"""Folders in which a trainer leaves checkpoints: which of them are whole and new.

A checkpoint counts once it is whole and its files have not changed between two looks, so that one that
is still being written is never taken. Invariant: no directory is reported twice, and of those that are
whole at one look the lower number comes first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from live_eval.errors import CorruptVersion
from live_eval.store.checkpoint import check_complete

_NUMBER = re.compile(r"\d+")
Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a look found."""

    whole: tuple[Path, ...] = ()
    """New and whole, in the order of their numbers."""
    refused: tuple[tuple[Path, str], ...] = ()
    """Those that can never be evaluated as they are, and why; each is told once."""


@dataclass(slots=True)
class CheckpointWatch:
    """Looks into folders; blocks as long as their file system does."""

    folders: Sequence[Path]
    _done: set[str] = field(default_factory=set, init=False)
    _stamps: dict[str, Stamp] = field(default_factory=dict, init=False)

    def look(self, known: Iterable[str] = ()) -> Found:
        """What is new since the last look, and is none of the paths that are `known`, links followed."""
        self._done.update(os.path.realpath(path) for path in known)
        whole: list[Path] = []
        refused: list[tuple[Path, str]] = []
        for path in self._candidates():
            real = os.path.realpath(path)
            stamp = _stamp(path)
            if real in self._done or stamp is None:
                continue
            if self._stamps.get(real) != stamp:
                self._stamps[real] = stamp  # it may still be written: the next look decides
                continue
            try:
                check_complete(path)
            except CorruptVersion as error:
                if "Convert it" in str(error):
                    refused.append((path, str(error)))
                    self._done.add(real)
                continue
            whole.append(path)
            self._done.add(real)
        whole.sort(key=_order)
        return Found(whole=tuple(whole), refused=tuple(refused))

    def _candidates(self) -> list[Path]:
        found: list[Path] = []
        for folder in self.folders:
            try:
                found += [Path(entry.path) for entry in os.scandir(folder) if _may_be(entry)]
            except OSError:  # a trainer makes it when it saves for the first time
                continue
        return sorted(found, key=_order)


def _may_be(entry: os.DirEntry[str]) -> bool:
    """Hidden and temporary names are a writer's own."""
    name = entry.name.lower()
    return entry.is_dir() and not name.startswith((".", "_")) and not name.endswith((".tmp", ".partial", "~"))


def _stamp(path: Path) -> Stamp | None:
    """Names, sizes and times of the files; None if there are none, or it goes away."""
    try:
        files = [(entry.name, entry.stat()) for entry in os.scandir(path) if entry.is_file()]
    except OSError:
        return None
    return tuple(sorted((name, info.st_size, info.st_mtime_ns) for name, info in files)) or None


def _order(path: Path) -> tuple[str, int, str]:
    """By folder, then the last number in the name; names without one come first."""
    numbers = _NUMBER.findall(path.name)
    return str(path.parent), int(numbers[-1]) if numbers else -1, path.name
