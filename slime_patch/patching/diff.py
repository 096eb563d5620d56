"""Unified diffs of bytes, exact enough for `git apply`: line ends and a missing last one included."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slime_patch.patching.replace import Change

_NO_END = b"\\ No newline at end of file\n"


def unified(changes: Mapping[str, Change]) -> bytes:
    """The diff from `old` to `new` of all files; empty if there are none."""
    return b"".join(piece for file, change in changes.items() for piece in _file(file, change))


def _file(file: str, change: Change) -> Iterator[bytes]:
    lines = difflib.diff_bytes(
        difflib.unified_diff,
        _lines(change.old),
        _lines(change.new),
        f"a/{file}".encode(),
        f"b/{file}".encode(),
    )
    for line in lines:
        yield line if line.endswith(b"\n") else line + b"\n" + _NO_END


def _lines(data: bytes) -> list[bytes]:
    # Only LF ends a line for patch and git; a CR before it is part of the line.
    lines = [line + b"\n" for line in data.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
