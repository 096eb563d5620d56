"""The real parser of a patched checkout, and of an unpatched one, on a CPU.

SETUP_DIR is the folder that tests/slime_cpu/setup.sh made: its environment has what slime imports.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from fakes.slime_history import export

from slime_patch.patching.cli import main

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(900)
STANDINS = (ROOT / "tests" / "slime_cpu" / "standin", ROOT / "live_eval" / "engines" / "embedded" / "stubs")
PROGRAM = """
import json, sys
from slime.utils.arguments import parse_args
print("ARGUMENTS", json.dumps({name: repr(value) for name, value in sorted(vars(parse_args()).items())}))
"""
FLAGS = """
--num-layers 2 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --num-query-groups 2
--kv-channels 16 --norm-epsilon 1e-6 --vocab-size 512 --swiglu --add-qkv-bias
--untie-embeddings-and-output-weights --actor-num-nodes 1 --actor-num-gpus-per-node 1
--rollout-num-gpus 1 --rollout-num-gpus-per-engine 1 --num-gpus-per-node 8 --num-rollout 3
--rollout-batch-size 2 --n-samples-per-prompt 2 --global-batch-size 4 --sglang-device cpu
"""


class Parser:
    """parse_args() of one exported checkout, in a process of its own."""

    def __init__(self, root: Path, *, installed: bool) -> None:
        self.root = root
        self.path = (root, *STANDINS, *((ROOT,) if installed else ()))

    def run(self, *flags: str) -> subprocess.CompletedProcess[str]:
        setup = Path(os.environ["SETUP_DIR"]).absolute()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, self.path)),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SGLANG_USE_CPU_ENGINE": "1",
            "SLIME_CPU": "1",
            "SLIME_ACCELERATOR": "cpu",
        }
        words = [*FLAGS.split(), "--hf-checkpoint", str(setup / "tiny"), *flags]
        return subprocess.run(
            [str(setup / "venv" / "bin" / "python"), "-c", PROGRAM, *words],
            env=environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def arguments(self, *flags: str) -> dict[str, str]:
        done = self.run(*flags)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.rsplit("ARGUMENTS ", 1)[1])


@pytest.fixture(scope="module")
def stock(slime_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(slime_dir, "HEAD", tmp_path_factory.mktemp("slime") / "stock")


@pytest.fixture(scope="module")
def patched(slime_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = export(slime_dir, "HEAD", tmp_path_factory.mktemp("slime") / "patched")
    assert main(["apply", str(root)]) == 0
    return root


def test_with_the_flags_off_the_arguments_are_those_of_the_unpatched_checkout(
    stock: Path, patched: Path
) -> None:
    flags = ("--eval-interval", "2", "--eval-prompt-data", "toy", "toy.jsonl")
    expected = Parser(stock, installed=True).arguments(*flags)
    assert len(expected) > 300
    assert Parser(patched, installed=True).arguments(*flags) == expected
    assert Parser(patched, installed=False).arguments(*flags) == expected


def test_an_eval_flag_is_never_ignored(patched: Path) -> None:
    mistyped = Parser(patched, installed=True).run("--eval-modus", "latest-synced")
    assert mistyped.returncode != 0
    assert "--eval-modus is no flag of slime or live-eval" in mistyped.stderr
    missing = Parser(patched, installed=False).run("--eval-mode", "latest-synced")
    assert missing.returncode != 0
    assert "No module named 'slime_patch'" in missing.stderr
