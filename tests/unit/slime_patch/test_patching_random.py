"""Whatever stands around the anchors, and however it is written, apply and revert do their work."""

from __future__ import annotations

import ast

from fakes.slime_miniature import MINIATURE
from hypothesis import given
from hypothesis import strategies as st

from slime_patch.patching import state
from slime_patch.patching.anchors import ARGUMENTS, INSERTIONS, Lines
from slime_patch.patching.edit import insert
from slime_patch.patching.source import Source

NO_STATEMENTS = ["", "   ", "# a comment", "# >> live-eval is not a marker"]
FILLERS = [
    *NO_STATEMENTS,
    "value = {'a': [1, 2]}",
    "if value: pass",
    "if value:\n    other = 1\nelse:\n    other = 2",
    "with open('x') as handle:\n    handle.read()",
    '"""a string\n\n  over lines\n"""',
    "text = 'кириллица'; more = 1",
    "def inner():\n    return args",
    "for index in range(3):\n\n    print(index)\n    # at its end",
    "create_rollout_manager(args, None)",
    "total = 1 + \\\n    2",
]
FILES = ["train.py", ARGUMENTS]


@st.composite
def variants(draw: st.DrawFn) -> tuple[str, bytes]:
    """A file of the miniature with fillers between its lines, in a style of its own."""
    file = draw(st.sampled_from(FILES))
    lines: list[str] = []
    for line in (MINIATURE / file).read_text(encoding="utf-8").splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        if line.strip() and draw(st.integers(0, 3)) == 0:
            # A statement inside of an anchor is an edit of the anchor; a comment there is not.
            inside = "add_custom_arguments(parser)" in line
            filler = draw(st.sampled_from(NO_STATEMENTS if inside else FILLERS))
            lines += _indented(filler, indent)
        lines.append(line)
    text = "\n".join(lines) + draw(st.sampled_from(["\n", "", "\n\n\n"]))
    if draw(st.booleans()):
        text = text.replace("    ", "\t")
    ends = draw(st.lists(st.sampled_from(["\n", "\r\n"]), min_size=1, max_size=3))
    parts = text.split("\n")
    data = "".join(part + ends[index % len(ends)] for index, part in enumerate(parts[:-1])) + parts[-1]
    return file, (b"\xef\xbb\xbf" if draw(st.booleans()) else b"") + data.encode()


def _indented(filler: str, indent: str) -> list[str]:
    """A string over several lines keeps its inner lines; code is indented."""
    if filler.startswith('"""'):
        return (indent + filler).splitlines()
    return [indent + line if line.strip() else line for line in filler.splitlines() or [""]]


@given(variants())
def test_apply_then_revert_is_the_identity_and_apply_is_stable(variant: tuple[str, bytes]) -> None:
    file, data = variant
    insertions = [insertion for insertion in INSERTIONS if insertion.file == file]
    done = insert(Source(data, file=file), insertions)
    ast.parse(done)
    assert [block.name for block in state.blocks(done, file=file)] == [
        insertion.name for insertion in insertions if isinstance(insertion, Lines)
    ]
    assert state.strip(done, file=file) == data
    assert insert(Source(state.strip(done, file=file), file=file), insertions) == done


@given(variants(), st.data())
def test_lines_added_after_apply_outside_of_insertions_stay_through_revert(
    variant: tuple[str, bytes], draw: st.DataObject
) -> None:
    file, data = variant
    done = insert(Source(data, file=file), [insertion for insertion in INSERTIONS if insertion.file == file])
    lines = done.splitlines(keepends=True)
    blocks = state.blocks(done, file=file)
    starts = [sum(map(len, lines[:index])) for index in range(len(lines))]
    free = [
        index
        for index, start in enumerate(starts)
        if not any(block.start < start < block.end for block in blocks)
    ]
    place = draw.draw(st.sampled_from(free))
    edited = b"".join([*lines[:place], b"# mine\n", *lines[place:]])
    restored = state.strip(edited, file=file)
    assert restored.replace(b"# mine\n", b"", 1) == data
    assert restored != data
