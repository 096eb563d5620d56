"""A patched script runs: with the flag it calls the hooks in order, without it nothing differs at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.slime_miniature import RECORDING_HOOKS, copy_checkout, run_script

from slime_patch.patching.cli import main


@pytest.fixture
def stock(tmp_path: Path) -> Path:
    return copy_checkout(tmp_path / "stock")


@pytest.fixture
def patched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    root = copy_checkout(tmp_path / "patched")
    assert main(["apply", str(root)]) == 0
    capsys.readouterr()
    return root


@pytest.mark.parametrize("script", ["train.py", "train_async.py"])
def test_the_hooks_are_called_in_order_and_the_trainers_are_tapped(patched: Path, script: str) -> None:
    done = run_script(patched, script, "--eval-mode", "latest-synced", path=(RECORDING_HOOKS,))
    assert done.status == 0, done.errors
    assert [call["call"] for call in done.calls] == [
        "hooks.configure",
        "train",
        "create_rollout_manager",
        "hooks.start",
        "create_training_models",
        "hooks.attach",
        "made",
        "update_weights",
        "async_train",
        "update_weights",
        "dispose",
        "hooks.finish",
        "finish_tracking",
    ]
    assert {call["actor"] for call in done.calls if call["call"] == "update_weights"} == {"TappedActor"}


def test_a_mode_without_taps_leaves_the_trainers_class(patched: Path) -> None:
    done = run_script(patched, "train.py", "--eval-mode", "checkpoint", path=(RECORDING_HOOKS,))
    assert done.status == 0, done.errors
    assert {call["actor"] for call in done.calls if call["call"] == "update_weights"} == {
        "MegatronTrainRayActor"
    }
    assert "hooks.attach" in [call["call"] for call in done.calls]


@pytest.mark.parametrize("script", ["train.py", "train_async.py"])
@pytest.mark.parametrize("hooks", [(), (RECORDING_HOOKS,)], ids=["not installed", "installed"])
@pytest.mark.parametrize(
    "flags", [(), ("--eval-interval", "2", "--num-rollout", "3"), ("--eval-mode=inline",)]
)
def test_with_the_flags_off_arguments_and_calls_are_those_of_the_unpatched_script(
    stock: Path, patched: Path, script: str, hooks: tuple[Path, ...], flags: tuple[str, ...]
) -> None:
    if not hooks and "--eval-mode=inline" in flags:
        flags = ()
    before = run_script(stock, script, *flags)
    after = run_script(patched, script, *flags, path=hooks)
    assert (before.status, after.status) == (0, 0), after.errors
    assert after.calls == before.calls
    assert before.calls[0]["call"] == "train"


@pytest.mark.parametrize("flags", [("--eval-mode", "latest-synced"), ("--eval-mode=checkpoint",)])
def test_a_flag_where_live_eval_is_not_installed_is_an_error_and_not_ignored(
    patched: Path, flags: tuple[str, ...]
) -> None:
    done = run_script(patched, "train.py", *flags)
    assert done.status != 0
    assert "No module named 'slime_patch'" in done.errors
    assert done.calls == []
