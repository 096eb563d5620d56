"""The scripts of examples/ ask for what live-eval understands and can carry out."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.example_scripts import EXAMPLES, SCRIPTS, submitted
from fakes.slime_standins import ENGINE_FLAGS, EvalDatasetConfig, slime_args

from slime_patch.arguments import add_arguments, check_flags, given_flags
from slime_patch.settings import Settings, settings_of

SLIMES_OWN = {
    "--n-samples-per-eval-prompt", "--eval-max-response-len", "--eval-top-p", "--eval-top-k",
    "--eval-temperature", "--eval-prompt-data", "--eval-interval",
}  # fmt: skip


@pytest.fixture
def slime_dir(tmp_path: Path) -> Path:
    models = tmp_path / "slime" / "scripts" / "models"
    models.mkdir(parents=True)
    for name in ("qwen2.5-0.5B", "qwen3-30B-A3B"):
        (models / f"{name}.sh").write_text("MODEL_ARGS=(--swiglu)\n")
    return tmp_path / "slime"


def settings(script: str, folder: Path, slime_dir: Path) -> Settings:
    model = folder / "model"
    model.mkdir()
    words = submitted(script, folder / "run", slime_dir=slime_dir, model=model)
    assert words[:3] == ["python3", "-m", "slime_patch.run"]

    def register(parser):
        add_arguments(parser, ENGINE_FLAGS)
        check_flags(words, {*parser._option_string_actions, *SLIMES_OWN})
        return parser

    def value(flag: str) -> str | None:
        return words[words.index(flag) + 1] if flag in words else None

    args = slime_args(
        words,
        base=model,
        register=register,
        colocate="--colocate" in words,
        save=value("--save"),
        rm_type=value("--rm-type"),
        rollout_num_gpus_per_engine=int(value("--rollout-num-gpus-per-engine") or 1),
        eval_datasets=[EvalDatasetConfig(name=words[words.index("--eval-prompt-data") + 1], path="x.jsonl")],
    )
    found = settings_of(args, words)
    assert found is not None
    return found


def test_fully_async(tmp_path: Path, slime_dir: Path) -> None:
    found = settings("fully_async_qwen2.5_0.5b.sh", tmp_path, slime_dir)
    assert (found.mode, found.on_update, found.interval) == ("latest-synced", "finish", 5)
    assert found.engines.num_engines == 1
    assert found.output_dir == tmp_path / "run" / "save_dir" / "live_eval"


def test_moe(tmp_path: Path, slime_dir: Path) -> None:
    found = settings("moe_qwen3_30b_a3b.sh", tmp_path, slime_dir)
    assert (found.on_update, found.max_consecutive_cancels, found.on_failure) == ("cancel", 2, "alert")
    assert (found.engines.num_engines, found.engines.gpus_per_engine) == (1, 4)
    assert "--mem-fraction-static" in found.engines.args
    assert found.store_max_bytes == 380_000_000_000


def test_checkpoint_sweep(tmp_path: Path, slime_dir: Path) -> None:
    found = settings("checkpoint_sweep.sh", tmp_path, slime_dir)
    assert found.mode == "checkpoint"
    assert found.checkpoints == (str(tmp_path / "model"),) * 2


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_asks_for_what_it_needs_and_names_no_machine(script: str) -> None:
    text = (EXAMPLES / script).read_text()
    assert text.count(":?") >= 5
    assert "/root" not in text and "/tmp" not in text and "pkill" not in text
    assert script in (EXAMPLES / "README.md").read_text()


def test_every_script_is_looked_at() -> None:
    assert {path.name for path in EXAMPLES.glob("*.sh")} == set(SCRIPTS)
    assert given_flags(["--eval-mode=x", "--lr", "1"]) == ["--eval-mode"]
