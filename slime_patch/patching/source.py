"""One Python file as structure with byte offsets: functions by name, statements of a function, line ends.

It does not know what is looked for. Bytes and not text are counted, so that nothing outside of an insertion
can change: line ends, tabs, a byte order mark, a missing last line end.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from slime_patch.patching.problems import PatchRefused, Problem
from slime_patch.patching.state import line_of

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
Definition = cst.FunctionDef | cst.ClassDef
_BLOCKS = (
    cst.BaseCompoundStatement,
    cst.BaseSuite,
    cst.Else,
    cst.Finally,
    cst.ExceptHandler,
    cst.ExceptStarHandler,
    cst.MatchCase,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A statement and the block it stands in."""

    node: Statement
    block: cst.CSTNode


class Source:
    """A parsed file. Raises PatchRefused if it is not UTF-8, or not Python that is written back unchanged."""

    def __init__(self, data: bytes, *, file: str) -> None:
        self.data = data
        self.file = file
        self._skip = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
        try:
            text = data[self._skip :].decode("utf-8")
            module = cst.parse_module(text)
        except UnicodeDecodeError as error:
            raise self._refused(line_of(data, error.start + self._skip), "is not UTF-8") from error
        except cst.ParserSyntaxError as error:
            raise self._refused(error.raw_line, f"is not valid Python: {error.message}") from error
        if module.code != text:
            raise self._refused(None, "has line ends or white space that would not survive")
        self._wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
        self.module = module
        self.unit = module.default_indent.encode()
        """One level of indentation."""

    def _refused(self, line: int | None, words: str) -> PatchRefused:
        return PatchRefused("the file cannot be edited", [Problem(file=self.file, line=line, words=words)])

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """First byte of a node and the one behind it."""
        place = self._wrapper.resolve(ByteSpanPositionProvider)[node]
        return self._skip + place.start, self._skip + place.start + place.length

    def line(self, node: cst.CSTNode) -> int:
        """The line on which a node begins."""
        return line_of(self.data, self.span(node)[0])

    def line_start(self, offset: int) -> int:
        """Offset at which the line of a byte begins."""
        head = self.data[self._skip : offset]
        return self._skip + max(head.rfind(b"\n"), head.rfind(b"\r")) + 1

    def line_stop(self, offset: int) -> int:
        """Offset of the line end (or the end of the file) behind a byte."""
        ends = [place for end in (b"\n", b"\r") if (place := self.data.find(end, offset)) >= 0]
        return min(ends, default=len(self.data))

    def line_end(self, offset: int) -> bytes:
        """The characters at the end of the line of a byte; the file's usual ones on a last line without."""
        stop = self.line_stop(offset)
        if stop == len(self.data):
            return self.module.default_newline.encode()
        return b"\r\n" if self.data[stop : stop + 2] == b"\r\n" else self.data[stop : stop + 1]

    def definitions(self, path: str) -> list[Definition]:
        """All functions or classes of this dotted name, e.g. under an if and its else."""
        found: Sequence[cst.CSTNode] = [self.module]
        for name in path.split("."):
            found = [
                inner.node
                for outer in found
                for inner in statements(outer)
                if isinstance(inner.node, cst.FunctionDef | cst.ClassDef) and inner.node.name.value == name
            ]
        return [node for node in found if isinstance(node, cst.FunctionDef | cst.ClassDef)]


def statements(scope: cst.CSTNode) -> Iterator[Found]:
    """All statements of a module, class or function, those in blocks too, but none of inner definitions."""
    for child in scope.children:
        is_elif = isinstance(scope, cst.If) and child is scope.orelse
        if isinstance(child, cst.SimpleStatementLine | cst.BaseCompoundStatement) and not is_elif:
            yield Found(node=child, block=scope)
        if isinstance(child, _BLOCKS) and not isinstance(child, cst.FunctionDef | cst.ClassDef):
            yield from statements(child)
