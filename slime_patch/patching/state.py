"""What is inserted in a file, read from its markers alone; there is no record beside the files to go stale.

A block stands between two marker comments and carries the hash of its lines as they were written:

    # >>> live-eval attach 0a1b2c3d4e5f (added by slime_patch; `python -m slime_patch revert` takes it out)
    ...
    # <<< live-eval attach

An argument is added to a call as `, NAME=live_eval_NAME`, where a block of the same file assigns
live_eval_NAME; the name is the marker. Indentation and line ends are not part of the hash, so a block that
was indented as a whole together with the code around it is still known.

Invariant: strip(file with insertions) is the file without them, byte for byte, or PatchRefused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from slime_patch.patching.problems import PatchRefused, Problem

HASH_DIGITS = 12
_BEGIN = re.compile(
    rb"^(?P<indent>[ \t\f]*)# >>> live-eval (?P<name>[a-z]+) (?P<digest>[0-9a-f]{12})(?: .*)?$"
)
_END = re.compile(rb"^[ \t\f]*# <<< live-eval (?P<name>[a-z]+)[ \t]*$")
_ANY = re.compile(rb"^[ \t\f]*# ?(?:>>>|<<<) ?live-eval\b")
_AFTER_ARGUMENT = re.compile(rb"\s*[,)#]")
_OWN_NAME = re.compile(rb"\blive_eval_\w+")
_ADVICE = "undo the edit (or take the whole insertion out, markers included), then try again"


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Lines that were inserted; offsets are bytes of the file and include both markers."""

    name: str
    line: int
    start: int
    end: int
    content: bytes
    recorded: str
    actual: str


def digest(lines: Sequence[bytes]) -> str:
    """Hash of a block's lines, which come without indentation and line ends."""
    return hashlib.sha256(b"\n".join(lines)).hexdigest()[:HASH_DIGITS]


def begin_marker(name: str, lines: Sequence[bytes]) -> bytes:
    """The comment before a block of these lines."""
    words = "added by slime_patch; `python -m slime_patch revert` takes it out"
    return f"# >>> live-eval {name} {digest(lines)} ({words})".encode()


def end_marker(name: str) -> bytes:
    """The comment after a block."""
    return f"# <<< live-eval {name}".encode()


def argument_text(keyword: str) -> bytes:
    """What is added behind a call's last argument to pass `keyword`."""
    return f", {keyword}=live_eval_{keyword}".encode()


def blocks(data: bytes, *, file: str) -> list[Block]:
    """The blocks in a file, in order, edited ones among them.

    Raises PatchRefused with the place where a marker has lost its partner or its form.
    """
    found: list[Block] = []
    open_: tuple[re.Match[bytes], int, int] | None = None
    inside: list[bytes] = []
    offset = 0
    for number, whole in enumerate(data.splitlines(keepends=True), start=1):
        line = whole.rstrip(b"\r\n")
        begin, end = _BEGIN.match(line), _END.match(line)
        if begin and open_ is None:
            open_, inside = (begin, number, offset), []
        elif end and open_ is not None and end["name"] == open_[0]["name"]:
            found.append(_block(data, open_, inside, offset + len(whole)))
            open_ = None
        elif begin or end or _ANY.match(line):
            raise _refused(file, number, "a marker of live-eval that has no partner, or was edited")
        else:
            inside.append(line)
        offset += len(whole)
    if open_ is not None:
        raise _refused(file, open_[1], f"insertion `{open_[0]['name'].decode()}` begins here and never ends")
    return found


def _block(data: bytes, open_: tuple[re.Match[bytes], int, int], inside: list[bytes], end: int) -> Block:
    begin, line, start = open_
    return Block(
        name=begin["name"].decode(),
        line=line,
        start=start,
        end=end,
        content=data[start:end],
        recorded=begin["digest"].decode(),
        actual=digest([inner.removeprefix(begin["indent"]) for inner in inside]),
    )


def strip(data: bytes, *, file: str) -> bytes:
    """The file without what was inserted.

    Raises PatchRefused with the places where a local edit touches an insertion.
    """
    found = blocks(data, file=file)
    problems = [
        Problem(
            file=file,
            line=block.line,
            words=f"a local edit touches the insertion `{block.name}`: these are not the lines as written",
        )
        for block in found
        if block.actual != block.recorded
    ]
    argument_spans, argument_problems = _arguments(data, found, file=file)
    problems += argument_problems
    if problems:
        raise PatchRefused("live-eval's insertions cannot be taken out", problems, advice=_ADVICE)
    spans = [(_start_of(block, data), block.end) for block in found] + argument_spans
    for start, end in sorted(spans, reverse=True):
        data = data[:start] + data[end:]
    return data


def _start_of(block: Block, data: bytes) -> int:
    """A block at the end of a file without a last line end came with the line end before it."""
    if block.end < len(data) or block.content.endswith((b"\n", b"\r")):
        return block.start
    before = data[: block.start]
    return len(before.removesuffix(b"\r\n") if before.endswith(b"\r\n") else before[:-1])


def _arguments(
    data: bytes, found: Sequence[Block], *, file: str
) -> tuple[list[tuple[int, int]], list[Problem]]:
    """Spans of the added arguments: each name that a block assigns is passed once outside of blocks."""
    spans: list[tuple[int, int]] = []
    problems: list[Problem] = []
    names = {name: block for block in found for name in _OWN_NAME.findall(block.content)}
    for name, block in names.items():
        text = argument_text(name.removeprefix(b"live_eval_").decode())
        outside = [
            match.start()
            for match in re.finditer(rb"\b" + name + rb"\b", data)
            if not any(other.start <= match.start() < other.end for other in found)
        ]
        starts = [place - len(text) + len(name) for place in outside]
        stop = starts[0] + len(text) if len(starts) == 1 else 0
        if stop and data[starts[0] : stop] == text and _AFTER_ARGUMENT.match(data, stop):
            spans.append((starts[0], stop))
            continue
        line = line_of(data, outside[0]) if outside else block.line
        words = (
            f"a local edit touches the argument `{text.decode()[2:]}`: expected it once, as it was written"
        )
        problems.append(Problem(file=file, line=line, words=words))
    return spans, problems


def line_of(data: bytes, offset: int) -> int:
    """Number of the line, counted from 1, that a byte is in."""
    return len((data[:offset] + b".").splitlines())


def _refused(file: str, line: int, words: str) -> PatchRefused:
    problem = Problem(file=file, line=line, words=words)
    return PatchRefused("live-eval's insertions cannot be told from the rest", [problem], advice=_ADVICE)
