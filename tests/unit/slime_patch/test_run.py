"""An unedited script under slime_patch.run: the hooks come in slime's order, and go with its errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_patch import __main__ as command
from slime_patch import hooks, run

CHECKOUT = Path(__file__).resolve().parents[2] / "fakes" / "slime_checkout"


def live_actor() -> type:
    """Stands for slime_patch.train_actor.LiveEvalTrainActor."""
    from slime.backends.megatron_utils.actor import MegatronTrainRayActor

    return type("LiveActor", (MegatronTrainRayActor,), {})


class Bench:
    """Runs a script of the small checkout, with hooks that write down when they are called."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log = tmp_path / "calls.jsonl"
        self.live = True
        monkeypatch.setenv("CALLS", str(self._log))
        monkeypatch.chdir(CHECKOUT)
        monkeypatch.syspath_prepend(str(CHECKOUT))
        for name in ("add_arguments", "configure", "start", "actor_class", "attach", "finish", "abandon"):
            monkeypatch.setattr(hooks, name, self._hook(name))

    def _hook(self, name: str) -> Callable[..., Any]:
        def hook(first: Any, *rest: Any) -> Any:
            with self._log.open("a") as log:
                log.write(json.dumps({"call": f"hooks.{name}"}) + "\n")
            if name == "add_arguments":
                first.add_argument("--eval-mode", default="inline")
            if name == "actor_class":
                return live_actor() if self.live else None
            return first if name == "add_arguments" else None

        return hook

    def calls(self) -> list[str]:
        return [json.loads(line)["call"] for line in self._log.read_text().splitlines()]

    def called_with(self, call: str) -> dict[str, Any]:
        return next(
            each for each in map(json.loads, self._log.read_text().splitlines()) if each["call"] == call
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before, argv, path = set(sys.modules), sys.argv, list(sys.path)
    yield Bench(tmp_path, monkeypatch)
    sys.argv, sys.path[:] = argv, path
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "slime":
            del sys.modules[name]


def test_the_hooks_stand_where_slime_patch_apply_would_write_them(bench: Bench) -> None:
    assert run.main(["train.py", "--num-rollout", "1"]) == 0
    found = [
        call for call in bench.calls() if call.startswith("hooks.") or call.startswith(("create", "finish"))
    ]
    assert found == [
        "hooks.add_arguments",
        "hooks.configure",
        "create_rollout_manager",
        "hooks.start",
        "hooks.actor_class",
        "create_training_models",
        "hooks.attach",
        "hooks.finish",  # while the trainer's W&B run is open
        "finish_tracking",
        "hooks.finish",  # for a script that does not call it
    ]


def test_the_tapped_actor_is_handed_to_slime(bench: Bench) -> None:
    run.main(["train_async.py"])
    assert "LiveActor" in bench.called_with("create_training_models")["actor_cls"]


def test_slimes_own_actor_stays_where_nothing_is_tapped(bench: Bench) -> None:
    bench.live = False
    run.main(["train.py"])
    assert bench.called_with("create_training_models")["actor_cls"] is None


def test_an_error_of_the_training_ends_live_eval_and_comes_out(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "from slime.utils.arguments import parse_args\nparse_args()\nraise ZeroDivisionError('in the loop')\n"
    )
    with pytest.raises(ZeroDivisionError, match="in the loop"):
        run.main([str(script)])
    assert bench.calls()[-1] == "hooks.abandon"


def test_a_training_actor_of_the_scripts_own_is_refused(bench: Bench, tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "from slime.ray.placement_group import create_training_models\n"
        "class Mine: ...\n"
        "create_training_models(None, None, None, actor_cls=Mine)\n"
    )
    with pytest.raises(SystemExit, match=r"brings a training actor of its own \(Mine\)"):
        run.main([str(script)])


def test_a_script_is_found_beside_the_package_too(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run.find_script("train.py") == CHECKOUT / "train.py"


def test_a_script_that_is_nowhere_is_an_error(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["trian.py"]) == 2
    assert "trian.py is neither in" in capsys.readouterr().err


def test_the_command_dispatches(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 2
    assert command.main(["--help"]) == 0
    told = capsys.readouterr().out
    assert "slime_patch run SCRIPT" in told and "Evaluate a slime run" in told and "\nexample" in told
    assert command.main(["run", "--help"]) == 0
    told = capsys.readouterr().out
    assert "Run one of slime's scripts" in told and "\nexample" in told
    assert command.main(["run", "train.py"]) == 0
    assert bench.calls()[0] == "hooks.add_arguments"
