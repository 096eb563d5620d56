"""The edit of one file: finds the anchors of its insertions, and writes the insertions in.

Pure: bytes in, bytes out. Invariant: state.strip of the result is what came in, byte for byte.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

import libcst as cst
import libcst.matchers as m

from slime_patch.patching import state
from slime_patch.patching.anchors import Anchor, Argument, Insertion, Lines, Need
from slime_patch.patching.problems import PatchRefused, Problem
from slime_patch.patching.source import Definition, Found, Source, statements


def missing(source: Source, insertions: Sequence[Insertion]) -> list[Problem]:
    """What keeps the insertions of one file out of it: each anchor that is missing, edited or there twice."""
    return _locate(source, insertions)[1]


def unmet(source: Source, needs: Sequence[Need]) -> list[Problem]:
    """Which of the functions that the hooks lean on this file does not have."""
    problems: list[Problem] = []
    for need in needs:
        found = source.definitions(need.function)
        if not found:
            problems.append(Problem(file=source.file, words=f"has no {need.function}()"))
            continue
        there = {name for node in found for name in _parameters(node)}
        for name in need.parameters:
            if name not in there:
                words = f"{need.function}() takes no `{name}`"
                problems.append(Problem(file=source.file, line=source.line(found[0]), words=words))
    return problems


def insert(source: Source, insertions: Sequence[Insertion]) -> bytes:
    """The file with its insertions. Raises PatchRefused with the places where one cannot go in."""
    located, problems = _locate(source, insertions)
    if problems:
        raise PatchRefused("live-eval's insertions do not fit", problems)
    pieces = [_piece(source, insertion, found.node) for insertion, found in located]
    data = source.data
    # From the end, so that earlier offsets stay right; of two at one place the later one is put in first.
    for offset, piece in sorted(reversed(pieces), key=lambda pair: pair[0], reverse=True):
        data = data[:offset] + piece + data[offset:]
    Source(data, file=source.file)
    if state.strip(data, file=source.file) != source.data:
        problem = Problem(file=source.file, words="what would be inserted could not be taken out again")
        raise PatchRefused("live-eval's insertions do not fit", [problem])
    return data


def _parameters(node: Definition) -> list[str]:
    if not isinstance(node, cst.FunctionDef):
        return []
    parameters = node.params
    every = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]
    return [parameter.name.value for parameter in every]


def _locate(
    source: Source, insertions: Sequence[Insertion]
) -> tuple[list[tuple[Insertion, Found]], list[Problem]]:
    located: list[tuple[Insertion, Found]] = []
    problems: list[Problem] = []
    anchors: dict[Anchor, Found | None] = {}
    for insertion in insertions:
        anchor = insertion.anchor
        if anchor not in anchors:
            anchors[anchor], trouble = _find(source, anchor)
            problems += trouble
        if (found := anchors[anchor]) is not None:
            located.append((insertion, found))
    return located, problems or _out_of_order(source, {a: f for a, f in anchors.items() if f is not None})


def _find(source: Source, anchor: Anchor) -> tuple[Found | None, list[Problem]]:
    functions = [node for node in source.definitions(anchor.function) if isinstance(node, cst.FunctionDef)]
    if len(functions) != 1:
        there = "no" if not functions else "more than one"
        line = source.line(functions[1]) if functions else None
        words = f"has {there} function {anchor.function}(), where `{anchor.words}` is looked for"
        return None, [Problem(file=source.file, line=line, words=words)]
    inside = list(statements(functions[0].body))
    found = [statement for statement in inside if m.matches(statement.node, anchor.statement)]
    if len(found) == 1:
        return found[0], []
    if found:
        lines = ", ".join(str(source.line(statement.node)) for statement in found)
        words = f"`{anchor.words}` is there more than once in {anchor.function}() (lines {lines})"
        return None, [Problem(file=source.file, line=source.line(found[1].node), words=words)]
    near = [
        s for s in inside if isinstance(s.node, cst.SimpleStatementLine) and m.findall(s.node, anchor.near)
    ]
    place, hint = (near[0].node, ": this looks like it and differs") if near else (functions[0], "")
    words = f"`{anchor.words}` is not in {anchor.function}(){hint}"
    return None, [Problem(file=source.file, line=source.line(place), words=words)]


def _out_of_order(source: Source, anchors: dict[Anchor, Found]) -> list[Problem]:
    """Anchors of one function stand in one block, in the order in which they are declared."""
    by_function: dict[str, list[tuple[Anchor, Found]]] = defaultdict(list)
    for anchor, found in anchors.items():
        by_function[anchor.function].append((anchor, found))
    problems: list[Problem] = []
    for function, pairs in by_function.items():
        for (first, before), (second, after) in pairwise(pairs):
            if before.block is after.block and source.span(before.node) < source.span(after.node):
                continue
            words = f"`{second.words}` does not follow `{first.words}` in one block of {function}()"
            problems.append(Problem(file=source.file, line=source.line(after.node), words=words))
    return problems


def _piece(source: Source, insertion: Insertion, node: cst.CSTNode) -> tuple[int, bytes]:
    """Where an insertion goes, and its bytes."""
    if isinstance(insertion, Argument):
        call = next(inner for inner in m.findall(node, m.Call()) if isinstance(inner, cst.Call))
        return source.span(call.args[-1])[1], state.argument_text(insertion.keyword)
    start, stop = source.span(node)
    line_start = source.line_start(start)
    text, newline = _lines(source, insertion, indent=source.data[line_start:start], at=stop)
    if insertion.where == "before":
        return line_start, text + newline
    stop = source.line_stop(stop)
    if stop == len(source.data):
        return stop, newline + text
    return stop + len(newline), text + newline


def _lines(source: Source, insertion: Lines, *, indent: bytes, at: int) -> tuple[bytes, bytes]:
    """The block with its markers, and the line end it is written with."""
    body: list[bytes] = []
    for line in insertion.body.splitlines():
        inner = line.lstrip(" ")
        body.append(source.unit * ((len(line) - len(inner)) // 4) + inner.encode())
    lines = [state.begin_marker(insertion.name, body), *body, state.end_marker(insertion.name)]
    newline = source.line_end(at)
    return newline.join(indent + line if line else line for line in lines), newline
