"""What is inserted is read from the markers; a local edit that touches it is refused with its place."""

from __future__ import annotations

import pytest
from fakes.slime_miniature import MINIATURE

from slime_patch.patching import state
from slime_patch.patching.anchors import INSERTIONS
from slime_patch.patching.edit import insert
from slime_patch.patching.problems import PatchRefused
from slime_patch.patching.source import Source

TRAIN = (MINIATURE / "train.py").read_bytes()
PATCHED = insert(Source(TRAIN, file="train.py"), [i for i in INSERTIONS if i.file == "train.py"])
ARGUMENT = b", actor_cls=live_eval_actor_cls"


def line_with(data: bytes, text: bytes) -> int:
    return next(number for number, line in enumerate(data.splitlines(), start=1) if text in line)


def test_blocks_carry_their_names_and_the_hash_of_what_was_written() -> None:
    found = state.blocks(PATCHED, file="train.py")
    assert [block.name for block in found] == ["start", "attach", "finish"]
    assert all(block.recorded == block.actual for block in found)


def test_a_file_without_insertions_is_left_as_it_is() -> None:
    assert state.strip(TRAIN, file="train.py") == TRAIN
    ours_by_name_only = TRAIN + b"\nlive_eval_mine = 1\n"
    assert state.strip(ours_by_name_only, file="train.py") == ours_by_name_only


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"import", b"import os, sys  # mine\nimport"),
        (b"    actor_model.update_weights()\n", b"    actor_model.update_weights()\n    print(args)\n"),
        (b"    # <<< live-eval start\n", b"    # <<< live-eval start\n    # mine\n"),
        (b"def train(args):", b"def train(args) -> None:"),
        (b"    finish_tracking(args)\n", b"    finish_tracking(args)\n    print('the end')"),
    ],
)
def test_edits_elsewhere_stay(old: bytes, new: bytes) -> None:
    assert state.strip(PATCHED.replace(old, new, 1), file="train.py") == TRAIN.replace(
        *((old, new) if old in TRAIN else (b"\n\n    # the models", b"\n    # mine\n\n    # the models")), 1
    )


def test_a_function_that_was_indented_as_a_whole_or_got_other_line_ends_is_still_known() -> None:
    def deeper(data: bytes) -> bytes:
        head, body = data.split(b"def train(args):\n", 1)
        lines = (b"    " + line if line.strip() else line for line in body.splitlines(keepends=True))
        return head + b"def train(args):\n" + b"".join(lines)

    assert state.strip(deeper(PATCHED), file="train.py") == deeper(TRAIN)
    crlf = PATCHED.replace(b"\n", b"\r\n")
    assert state.strip(crlf, file="train.py") == TRAIN.replace(b"\n", b"\r\n")


@pytest.mark.parametrize(
    ("old", "new", "place", "said"),
    [
        (
            b"live_eval.attach(args, actor_model)",
            b"live_eval.attach(args, None)",
            b">>> live-eval attach",
            "`attach`",
        ),
        (
            b"    # <<< live-eval start",
            b"    x = 1\n    # <<< live-eval start",
            b">>> live-eval start",
            "`start`",
        ),
        (b"    # <<< live-eval start\n", b"", b">>> live-eval attach", "partner"),
        (b"    # <<< live-eval finish\n", b"", b">>> live-eval finish", "never ends"),
        (b"# >>> live-eval attach ", b"# >>> live-eval attach x", b">>> live-eval attach", "partner"),
        (b"# <<< live-eval attach", b"# <<< live-eval", b"<<< live-eval\n", "partner"),
        (
            ARGUMENT,
            b", actor_cls = live_eval_actor_cls",
            b"actor_cls = live",
            "actor_cls=live_eval_actor_cls",
        ),
        (ARGUMENT, b"", b">>> live-eval start", "actor_cls=live_eval_actor_cls"),
        (ARGUMENT, ARGUMENT + b" or Mine", b"or Mine", "expected it once, as it was written"),
        (
            b"    actor_model.up",
            b"    print(live_eval_actor_cls)\n    actor_model.up",
            b"create_training_models(",
            "once",
        ),
    ],
)
def test_a_local_edit_that_touches_an_insertion_is_refused_with_the_place(
    old: bytes, new: bytes, place: bytes, said: str
) -> None:
    edited = PATCHED.replace(old, new, 1)
    assert edited != PATCHED
    with pytest.raises(PatchRefused, match="no file was changed") as caught:
        state.strip(edited, file="train.py")
    (problem,) = caught.value.problems
    lines = edited.splitlines(keepends=True)
    assert place in lines[(problem.line or 0) - 1], problem
    assert said in problem.words


def test_every_edited_insertion_is_named_at_once() -> None:
    edited = PATCHED.replace(b"live_eval.attach(", b"live_eval.hold(").replace(
        b"live_eval.finish(", b"live_eval.end("
    )
    with pytest.raises(PatchRefused) as caught:
        state.strip(edited, file="train.py")
    assert [problem.line for problem in caught.value.problems] == [
        line_with(edited, b">>> live-eval attach"),
        line_with(edited, b">>> live-eval finish"),
    ]
