"""Where insertions go: found by structure, written in the file's own style, and out again byte for byte."""

from __future__ import annotations

import ast

import pytest
from fakes.slime_miniature import MINIATURE

from slime_patch.patching import state
from slime_patch.patching.anchors import ARGUMENTS, INSERTIONS
from slime_patch.patching.edit import insert, missing
from slime_patch.patching.problems import PatchRefused
from slime_patch.patching.source import Source

TRAIN = (MINIATURE / "train.py").read_bytes()
OF_TRAIN = [insertion for insertion in INSERTIONS if insertion.file == "train.py"]
OF_ARGUMENTS = [insertion for insertion in INSERTIONS if insertion.file == ARGUMENTS]


def patched(data: bytes) -> bytes:
    """The file with its insertions, after proving that they come out again and that Python reads it."""
    done = insert(Source(data, file="train.py"), OF_TRAIN)
    ast.parse(done)
    assert state.strip(done, file="train.py") == data
    return done


def problems(data: bytes) -> list[str]:
    return [str(problem) for problem in missing(Source(data, file="train.py"), OF_TRAIN)]


def train_with(statements: str) -> bytes:
    """A train() of these statements."""
    return ("def train(args):\n" + statements).encode()


def test_a_script_gets_four_insertions_in_the_order_in_which_they_run() -> None:
    text = patched(TRAIN).decode()
    lines = [line.strip() for line in text.splitlines()]
    assert lines.index(
        'rollout_manager, num_rollout_per_epoch = create_rollout_manager(args, pgs["rollout"])'
    ) + 1 == (lines.index(next(line for line in lines if line.startswith("# >>> live-eval start "))))
    made = "actor_model, critic_model = create_training_models(args, pgs, rollout_manager"
    call = f"{made}, actor_cls=live_eval_actor_cls)"
    assert lines[lines.index(call) + 1].startswith("# >>> live-eval attach ")
    assert lines[lines.index("# <<< live-eval finish") + 1] == "finish_tracking(args)"
    assert text.index("live_eval.start(args") < text.index(call) < text.index("live_eval.attach(args")


def test_the_arguments_are_registered_behind_the_callers_and_configured_before_they_are_returned() -> None:
    data = (MINIATURE / ARGUMENTS).read_bytes()
    done = insert(Source(data, file=ARGUMENTS), OF_ARGUMENTS)
    lines = [line.strip() for line in done.decode().splitlines()]
    register = lines.index(next(line for line in lines if line.startswith("# >>> live-eval register ")))
    assert lines[register - 1] == "parser = add_custom_arguments(parser)"
    assert lines[lines.index("# <<< live-eval configure") + 1] == "return args"
    assert state.strip(done, file=ARGUMENTS) == data


def test_inserted_lines_stay_within_the_line_length_of_slime() -> None:
    data = insert(Source((MINIATURE / ARGUMENTS).read_bytes(), file=ARGUMENTS), OF_ARGUMENTS)
    assert max(len(line) for line in (patched(TRAIN) + data).splitlines()) <= 119


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"\n", b"\r\n"),
        (b"    ", b"\t"),
        (b"    ", b"  "),
        (b'if __name__ == "__main__":\n    args = parse_args()\n    train(args)\n', b"# the end"),
        (b"from slime.calls", b"\xef\xbb\xbffrom slime.calls"),
        (b"    # the models\n", "    # 模型, тоже модели\n".encode()),
        (b"    # the models\n", b"\x0c\n"),
        (
            b"create_training_models(args, pgs, rollout_manager)",
            b"create_training_models( args,pgs , rollout_manager )",
        ),
        (
            b"create_training_models(args, pgs, rollout_manager)",
            b"create_training_models(\n  args,  # the job\n  pgs,\n        rollout_manager,  # last\n    )",
        ),
        (b"actor_model, critic_model =", b"(actor_model, critic_model) ="),
        (
            b"create_training_models(args, pgs, rollout_manager)",
            b"(create_training_models(args, pgs, rollout_manager))",
        ),
        (b"pgs, rollout_manager)\n", b"pgs, (rollout_manager))\n"),
        (b"rollout_manager)\n    record", b"rollout_manager)  # noqa: F841 ; a, b\n    record"),
        (b"    finish_tracking(args)\n", b"    finish_tracking(args);\n"),
        (b"    finish_tracking(args)\n", b"    # done\n    finish_tracking(args,)  # really\n"),
        (b'pgs["rollout"]', b"pgs['rollout']"),
    ],
)
def test_formatting_does_not_matter_and_survives(old: bytes, new: bytes) -> None:
    data = TRAIN.replace(old, new)
    assert data != TRAIN
    done = patched(data)
    assert done.count(b"# >>> live-eval") == 3
    assert (b"\r\n" in done) == (b"\r\n" in data)
    assert done.count(b"\r\n") in (0, done.count(b"\n"))


def test_an_insertion_takes_the_line_end_of_its_anchor_where_they_are_mixed() -> None:
    data = TRAIN.replace(b"rollout_manager)\n    record", b"rollout_manager)\r\n    record")
    lines = patched(data).splitlines(keepends=True)
    ends = {line.strip(): line.endswith(b"\r\n") for line in lines}
    assert ends[b"live_eval.attach(args, actor_model)"]
    assert not ends[b"live_eval.finish(args)"]


def test_an_anchor_on_a_last_line_without_line_end() -> None:
    data = train_with(
        '    rollout_manager, num_rollout_per_epoch = create_rollout_manager(args, pgs["rollout"])\n'
        "    finish_tracking(args)\n"
        "    actor_model, critic_model = create_training_models(args, pgs, rollout_manager)"
    )
    only = [insertion for insertion in OF_TRAIN if insertion.name == "attach"]
    done = insert(Source(data, file="train.py"), only)
    assert done.endswith(b"\n    # <<< live-eval attach")
    assert state.strip(done, file="train.py") == data


def test_anchors_in_a_common_block_are_found() -> None:
    body = TRAIN[TRAIN.index(b"    pgs =") : TRAIN.index(b"\n\nif __name__")]
    inner = b"".join(b"    " + line if line.strip() else line for line in body.splitlines(keepends=True))
    data = b"def train(args):\n    try:\n" + inner + b"\n    finally:\n        pass\n"
    assert b"\n        # <<< live-eval finish\n" in patched(data)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            b"create_training_models(args, pgs, rollout_manager)",
            b"create_training_models(args, pgs, rollout_manager, actor_cls=Mine)",
            "train.py:18: `actor_model, critic_model = create_training_models(args, pgs, rollout_manager)`"
            " is not in train(): this looks like it and differs",
        ),
        (b"    finish_tracking(args)\n", b"", "train.py:10: `finish_tracking(args)` is not in train()"),
        (
            b"    finish_tracking(args)\n",
            b"    finish_tracking(args, 1)\n",
            "train.py:30: `finish_tracking(args)` is",
        ),
        (
            b"    finish_tracking(args)\n",
            b"    print(); finish_tracking(args)\n",
            "train.py:30: `finish_tracking(args)`",
        ),
        (
            b"    finish_tracking(args)\n",
            b"    if args: finish_tracking(args)\n",
            "`finish_tracking(args)` is not in",
        ),
        (b"def train(", b"def training(", "train.py: has no function train(), where"),
        (
            b"def train(args):",
            b"def train(args):\n    pass\n\n\ndef train(args):",
            "has more than one function train()",
        ),
        (
            b"    rollout_manager.dispose()\n",
            b"    finish_tracking(args)\n    rollout_manager.dispose()\n",
            "train.py:31: `finish_tracking(args)` is there more than once in train() (lines 29, 31)",
        ),
        (
            b"    finish_tracking(args)\n",
            b"    if args:\n        finish_tracking(args)\n",
            "in one block of train()",
        ),
    ],
)
def test_an_anchor_that_is_missing_edited_or_there_twice_is_named_with_its_place(
    old: bytes, new: bytes, said: str
) -> None:
    data = TRAIN.replace(old, new)
    assert data != TRAIN
    found = problems(data)
    assert any(said in problem for problem in found), found
    with pytest.raises(PatchRefused, match="do not fit"):
        insert(Source(data, file="train.py"), OF_TRAIN)


def test_anchors_in_the_wrong_order_are_refused() -> None:
    made = b'    rollout_manager, num_rollout_per_epoch = create_rollout_manager(args, pgs["rollout"])\n'
    data = TRAIN.replace(made, b"").replace(
        b"    finish_tracking(args)\n", made + b"    finish_tracking(args)\n"
    )
    assert any("does not follow" in problem for problem in problems(data))


def test_an_elif_is_no_place_for_an_insertion() -> None:
    data = (MINIATURE / ARGUMENTS).read_bytes()
    edited = data.replace(
        b"        if add_custom_arguments is not None:",
        b"        if parser is None:\n            pass\n        elif add_custom_arguments is not None:",
    )
    assert edited != data
    assert len(missing(Source(edited, file=ARGUMENTS), OF_ARGUMENTS)) == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"def train(args:\n", "train.py:1: is not valid Python"),
        (b"# \xff\xfe\n", "train.py:1: is not UTF-8"),
        (b"a = 1\rb = 2\r", "line ends"),
    ],
)
def test_a_file_that_cannot_be_written_back_unchanged_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(PatchRefused, match=said):
        Source(data, file="train.py")
