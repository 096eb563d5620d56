"""Folders in which a trainer leaves checkpoints: which of them are whole and new.

A checkpoint counts once it is whole and its files have not changed between two looks, so that one that
is still being written is never taken. Invariant: no directory is reported twice, and of those that are
whole at one look the lower number comes first.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from live_eval.errors import CONVERT_IT, CorruptVersion
from live_eval.store.checkpoint import check_complete

_NUMBER = re.compile(r"\d+")
Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a look found."""

    whole: tuple[Path, ...] = ()
    """New and whole, in the order of their numbers."""
    refused: tuple[tuple[Path, str], ...] = ()
    """Those that cannot be evaluated as they are, and why; each is told once."""


@dataclass(slots=True)
class CheckpointWatch:
    """Looks into folders; blocks as long as their file system does."""

    folders: Sequence[Path]
    _done: set[str] = field(default_factory=set, init=False)
    _stamps: dict[str, Stamp] = field(default_factory=dict, init=False)
    _refused: dict[str, Stamp] = field(default_factory=dict, init=False)

    def look(self, known: Iterable[str] = ()) -> Found:
        """What is new since the last look, and is none of the paths that are `known`, links followed."""
        self._done.update(os.path.realpath(path) for path in known)
        whole: list[Path] = []
        refused: list[tuple[Path, str]] = []
        for real, path in self._by_target().items():
            stamp = _stamp(path)
            if real in self._done or stamp is None or self._refused.get(real) == stamp:
                continue
            if self._stamps.get(real) != stamp:
                self._stamps[real] = stamp  # it may still be written: the next look decides
                continue
            try:
                check_complete(path)
            except CorruptVersion as error:
                if CONVERT_IT in str(error):
                    if real not in self._refused:
                        refused.append((path, str(error)))
                    self._refused[real] = stamp  # what is there of it may be only what is written first
                continue
            whole.append(path)
            self._done.add(real)
        whole.sort(key=_order)
        return Found(whole=tuple(whole), refused=tuple(refused))

    def _by_target(self) -> dict[str, Path]:
        """What links lead to -> a path; a link beside its target is no second look at it."""
        found: dict[str, Path] = {}
        for path in sorted(self._candidates(), key=Path.is_symlink):
            found.setdefault(os.path.realpath(path), path)
        return found

    def _candidates(self) -> list[Path]:
        found: list[Path] = []
        for folder in self.folders:
            try:
                found += [Path(entry.path) for entry in os.scandir(folder) if _may_be(entry)]
            except OSError:  # a trainer makes it when it saves for the first time
                continue
        return found


def _may_be(entry: os.DirEntry[str]) -> bool:
    """Hidden and temporary names are a writer's own."""
    name = entry.name.lower()
    try:
        is_dir = entry.is_dir()
    except OSError:  # a link that leads to itself says nothing of its neighbours
        return False
    return is_dir and not name.startswith((".", "_")) and not name.endswith((".tmp", ".partial", "~"))


def _stamp(path: Path) -> Stamp | None:
    """Names, sizes and times of the files; None if there are none, or it goes away."""
    try:
        files = [found for entry in os.scandir(path) if (found := _file(entry)) is not None]
    except OSError:
        return None
    return tuple(sorted(files)) or None


def _file(entry: os.DirEntry[str]) -> tuple[str, int, int] | None:
    try:
        info = entry.stat()
    except OSError:  # a link to nothing, or to itself
        return None
    return (entry.name, info.st_size, info.st_mtime_ns) if stat.S_ISREG(info.st_mode) else None


def _order(path: Path) -> tuple[str, int, str]:
    """By folder, then the last number in the name; names without one come first."""
    numbers = _NUMBER.findall(path.name)
    return str(path.parent), int(numbers[-1]) if numbers else -1, path.name
