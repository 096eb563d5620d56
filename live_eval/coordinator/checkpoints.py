"""What is known of a checkpoint that a user named, besides its weights."""

from __future__ import annotations

import hashlib
import re
import stat
from typing import TYPE_CHECKING

from live_eval.errors import ConfigError, CorruptVersion
from live_eval.store.manifest import MANIFEST_NAME, Manifest

if TYPE_CHECKING:
    from pathlib import Path

_STEP = re.compile(r"(?:^|[_-])(?:global_?step|step|iter|checkpoint|rollout)[_-]?0*(\d+)$", re.IGNORECASE)
"""How trainers name the directory of a step: step_200, iter_0000200, checkpoint-200, global_step200."""


def train_step_of(directory: Path) -> int | None:
    """The train step of a checkpoint; None where nothing says it.

    A policy version's directory has it in its manifest. Elsewhere only a name that trainers give
    to a step counts: any other number in a name is a size, a date or a version.
    """
    if (directory / MANIFEST_NAME).exists():
        try:
            return _plausible(Manifest.load(directory).train_step)
        except CorruptVersion:
            return None  # a manifest of something else
    found = _STEP.search(directory.name)
    return _plausible(int(found.group(1))) if found else None


def _plausible(step: int | None) -> int | None:
    """None for what no training counts to, such as a time in digits: no database or browser takes it."""
    return step if step is None or 0 <= step < 2**53 else None


def check_name(directory: Path) -> None:
    """ConfigError for a path that is no text: names on a disk are bytes, and what is told is text."""
    try:
        str(directory).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConfigError(f"the path {str(directory)!a} is no UTF-8 text: rename the directory") from error


def files_of(directory: Path) -> str:
    """A name for what lies in a checkpoint's directory now, another one once a file was changed or
    replaced; by the files' sizes, times and inodes, since reading a large one takes minutes. Empty
    where the directory cannot be read.
    """
    try:
        found = sorted((entry.name, entry.stat()) for entry in directory.iterdir())
    except OSError:
        return ""
    lines = [
        f"{name} {status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns}"
        for name, status in found
        if stat.S_ISREG(status.st_mode)
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]
