"""A directory through which versions travel where trainer and receiver share a file system.

    <life>-<weight version>-<source>/     one source's part of one sync, under this name when it is whole
        begin.msgpack  done.msgpack       messages of the protocol
        given_up.msgpack                  instead: this version will not come
        delta.json                        beside begin: the files are a delta (see live_eval.subscriber.delta)
        *.safetensors                     tensors

Knows names, messages and renames; not what the files hold. Invariants: an entry appears by one rename; who
takes it removes it; nothing here follows a link out of the directory, or removes what has no name of ours.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from live_eval.errors import TransportError
from protocol.codec import decode, encode
from protocol.errors import ProtocolError
from protocol.messages import SourceDone, SyncBegin, SyncGivenUp

UNFINISHED = ".tmp"
BEGIN, DONE, GIVEN_UP, DELTA = "begin.msgpack", "done.msgpack", "given_up.msgpack", "delta.json"
WEIGHTS = ".safetensors"
TOKEN = "live_eval_token"
"""A file by which somebody elsewhere sees that it is the same directory."""
ENTRY = re.compile(rf".+-\d{{8,}}-[^-]+?({re.escape(UNFINISHED)})?")
"""Names of entries, finished or not; nothing else in the directory is touched."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one source has posted of one sync."""

    path: Path
    begin: SyncBegin | None
    done: SourceDone | None
    given_up: SyncGivenUp | None
    delta: dict[str, Any] | None
    posted_at: float
    """By the clock of the file system."""
    files: list[Path] = field(default_factory=list)

    @property
    def message(self) -> SyncBegin | SyncGivenUp:
        """What it says of its sync."""
        message = self.begin or self.given_up
        assert message is not None
        return message

    @property
    def source(self) -> str:
        """Who posted it."""
        return self.path.name.rsplit("-", 1)[1]

    def remove(self) -> None:
        """It was taken."""
        shutil.rmtree(self.path, ignore_errors=True)


class Draft:
    """An entry that is being written; `post` makes it one."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.path = target.with_name(target.name + UNFINISHED)
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)

    def link(self, file: Path) -> None:
        """Have a file of the same file system in it, whatever becomes of its first name. OSError if not."""
        os.link(file, self.path / file.name)

    def post(
        self,
        message: SyncBegin | SyncGivenUp,
        done: SourceDone | None = None,
        *,
        delta: dict[str, Any] | None = None,
    ) -> None:
        """It is whole."""
        if isinstance(message, SyncGivenUp):
            (self.path / GIVEN_UP).write_bytes(encode(message))
        else:
            (self.path / BEGIN).write_bytes(encode(message))
        if done is not None:
            (self.path / DONE).write_bytes(encode(done))
        if delta is not None:
            (self.path / DELTA).write_text(json.dumps(delta))
        shutil.rmtree(self._target, ignore_errors=True)
        self.path.rename(self._target)

    def drop(self) -> None:
        """It will not be posted."""
        shutil.rmtree(self.path, ignore_errors=True)


class Mailbox:
    """The directory, from either side."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def make(self, token: str) -> None:
        """Create it, without entries, and leave the token there.

        OSError if it cannot be, and for a directory that holds something and is no mailbox.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        names = os.listdir(self.directory)
        if names and TOKEN not in names:
            reason = "it holds files and is no mailbox; give a new or an empty directory"
            raise OSError(errno.ENOTEMPTY, reason, str(self.directory))
        for name in filter(ENTRY.fullmatch, names):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        (self.directory / TOKEN).write_text(token)

    def holds(self, token: str) -> bool:
        """Whether this is the directory in which that token was left."""
        try:
            return (self.directory / TOKEN).read_text() == token
        except OSError:
            return False

    def draft(self, life: str, weight_version: int, source: str) -> Draft:
        """A new entry; what an earlier life of this source left unfinished goes. `source` has no dashes.

        OSError if it cannot be made.
        """
        for left in self.directory.glob(f"*-{source}{UNFINISHED}"):
            if not left.name.startswith(f"{life}-"):
                shutil.rmtree(left, ignore_errors=True)
        return Draft(self.directory / f"{life}-{weight_version:08d}-{source}")

    def num_waiting(self, source: str) -> int:
        """Entries of this source with weights in them that nobody has taken."""
        return sum((path / BEGIN).exists() for path in self._paths() if path.name.endswith(f"-{source}"))

    def entries(self) -> list[Entry]:
        """All that are whole: lives by their oldest entry, versions of a life in their order.

        Sources may be some versions apart, so the times of entries do not order versions. What cannot be
        read is removed.
        """
        found: list[Entry] = []
        for path in self._paths():
            try:
                found.append(_read(path))
            except (OSError, ProtocolError, ValueError, TransportError):
                shutil.rmtree(path, ignore_errors=True)
        lives: dict[str, float] = {}
        for entry in found:
            life = entry.message.incarnation_id
            lives[life] = min(entry.posted_at, lives.get(life, math.inf))

        def order(entry: Entry) -> tuple[float, str, int, str]:
            life = entry.message.incarnation_id
            return lives[life], life, entry.message.weight_version, entry.source

        return sorted(found, key=order)

    def _paths(self) -> list[Path]:
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        whole = (name for name in sorted(names) if ENTRY.fullmatch(name) and not name.endswith(UNFINISHED))
        paths = [self.directory / name for name in whole]
        return [path for path in paths if path.is_dir() and not path.is_symlink()]


def _read(path: Path) -> Entry:
    begin = _message(path / BEGIN, SyncBegin)
    given_up = _message(path / GIVEN_UP, SyncGivenUp)
    if begin is None and given_up is None:
        raise TransportError(f"{path} is no entry")
    delta = json.loads((path / DELTA).read_text()) if (path / DELTA).exists() else None
    files = sorted(each for each in path.iterdir() if each.name.endswith(WEIGHTS) and not each.is_symlink())
    done = _message(path / DONE, SourceDone)
    return Entry(path, begin, done, given_up, delta, path.stat().st_mtime, files)


def _message(path: Path, kind: type[Any]) -> Any:
    if not path.exists():
        return None
    message = decode(path.read_bytes())
    if not isinstance(message, kind):
        raise TransportError(f"{path} holds a {type(message).__name__}")
    return message
