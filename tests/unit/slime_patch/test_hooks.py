"""The hooks as slime's code calls them: nothing in inline mode, errors before anything is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.checkpoints import Model
from fakes.slime_standins import ENGINE_FLAGS, slime_args

from slime_patch import arguments, hooks

if TYPE_CHECKING:
    from argparse import Namespace

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "_state", hooks._State())
    monkeypatch.setattr(arguments, "sglang_flags", lambda: list(ENGINE_FLAGS))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Model().write(tmp_path / "checkpoint")


def parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str) -> Namespace:
    words = line.split()
    monkeypatch.setattr(sys, "argv", ["train.py", *words])
    args = slime_args(words, base=tmp_path, register=hooks.add_arguments)
    hooks.configure(args)
    return args


def test_importing_the_hooks_loads_nothing_heavy() -> None:
    program = (
        "import sys, slime_patch.hooks, slime_patch.run, slime_patch.__main__;"
        "print({'torch', 'ray', 'slime', 'sglang', 'wandb'} & {name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


def test_inline_leaves_slimes_arguments_as_they_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = "--eval-interval 4"
    plain = slime_args(words.split(), base=tmp_path, register=lambda parser: parser)
    assert vars(parsed(monkeypatch, tmp_path, words)) == vars(plain)


def test_inline_hooks_do_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    args = parsed(monkeypatch, tmp_path, "")
    hooks.start(args, {}, None)
    assert hooks.actor_class(args) is None
    hooks.attach(args, None)
    hooks.finish(args)
    hooks.abandon(args)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--eval-mod latest-synced", r"train.py: error: --eval-mod is no flag .* did you mean --eval-mode"),
        ("--eval-num-gpus 1", "--eval-num-gpus does nothing in --eval-mode inline"),
        ("--eval-mode latest-synced --eval-num-gpus 1 --eval-prompt-data a b", "config.json"),
    ],
)
def test_what_cannot_be_ends_the_process_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        parsed(monkeypatch, tmp_path, line)


def test_slimes_blocking_eval_is_off_in_live_mode(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checkpoint: Path
) -> None:
    line = f"--eval-mode checkpoint --eval-checkpoint {checkpoint} --eval-num-gpus 1"
    args = parsed(monkeypatch, checkpoint, line + " --eval-interval 5 --eval-prompt-data a b")
    assert args.eval_interval is None
    job = hooks._job(args)
    assert job is not None and job.settings.interval == 5
    assert hooks.actor_class(args) is None
    hooks.configure(args)  # as where a patched checkout is started through slime_patch.run
    assert hooks._job(args) is job
