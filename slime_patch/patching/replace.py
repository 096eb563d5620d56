"""Replaces the contents of several files, all or none.

All new contents are on disk beside their targets before the first rename; a failure or Ctrl-C in between
puts back what was renamed. Each rename is atomic, so a kill leaves whole files, some of them new: what a
caller wants to hold even then must be a function of each file alone. Its leftovers are for the caller
to remove. Mode and owner stay; a hard link is broken rather than written through.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from live_eval.errors import ConfigError

_SUFFIX = ".live-eval-tmp"


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What a file holds, and what it shall hold."""

    old: bytes
    new: bytes


def replace_all(changes: Mapping[Path, Change]) -> None:
    """Write every `new`.

    Raises ConfigError, with nothing changed, if a file is read-only, is not `old` any more, or fails.
    """
    for path in changes:
        _check(path)
    staged: list[Path] = []
    done: list[tuple[Path, Path]] = []
    try:
        ready = [(path, _stage(path, change, staged)) for path, change in changes.items()]
        for path, (new, old) in ready:
            if path.read_bytes() != changes[path].old:
                raise ConfigError(
                    f"{path} was changed by someone else meanwhile: try again; no file was changed"
                )
            os.replace(new, path)
            done.append((path, old))
    except BaseException as error:
        for path, old in done:
            os.replace(old, path)
        if isinstance(error, OSError):
            raise ConfigError(
                f"{error.filename} cannot be written: {error.strerror}; no file was changed"
            ) from error
        raise
    finally:
        for temporary in staged:
            temporary.unlink(missing_ok=True)
    for folder in {path.parent for path in changes}:
        _sync(folder)


def _check(path: Path) -> None:
    writable = path.stat().st_mode & stat.S_IWUSR and os.access(path, os.W_OK)
    if not writable or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{path} (or its directory) is read-only: make it writable; no file was changed")


def remove_leftovers(path: Path) -> None:
    """Delete what a kill left beside a file."""
    for leftover in path.parent.glob(f".{path.name}.*{_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def _stage(path: Path, change: Change, staged: list[Path]) -> tuple[Path, Path]:
    """Two files beside `path`: the new content, and the old one for going back without needing any space."""
    return _write(path, change.new, staged), _write(path, change.old, staged)


def _write(path: Path, content: bytes, staged: list[Path]) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=_SUFFIX, dir=path.parent)
    staged.append(Path(name))
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    shutil.copymode(path, name)
    owner = path.stat()
    if (owner.st_uid, owner.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):  # only root may give files away; then it is the caller's
            os.chown(name, owner.st_uid, owner.st_gid)
    return Path(name)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
