"""The scripts of examples/ under slime's own parser, as its scripts call it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from fakes.example_scripts import SCRIPTS, submitted

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(300)
STANDINS = (ROOT / "tests" / "slime_cpu" / "standin", ROOT / "live_eval" / "engines" / "embedded" / "stubs")
PROGRAM = """
import json, sys
from slime.utils.arguments import parse_args
from slime_patch import arguments, hooks
from slime_patch.settings import settings_of
args = parse_args(add_custom_arguments=hooks.add_arguments)
arguments.check_flags(sys.argv[1:], hooks._state.parser._option_string_actions)
found = settings_of(args, sys.argv[1:])
print("SETTINGS", json.dumps({
    "mode": found.mode, "on_update": found.on_update, "interval": found.interval,
    "engines": found.engines.num_engines, "rm_type": found.datasets[0].rm_type,
    "n": found.datasets[0].n, "max_new_tokens": found.datasets[0].sampling.max_new_tokens,
    "rollout_gpus": args.rollout_num_gpus, "train_gpus": args.actor_num_gpus_per_node,
}))
"""
DENSE = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_hidden_layers": 24, "hidden_size": 896,
    "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0, "vocab_size": 151936, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
}  # fmt: skip
MOE = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 48,
    "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
EXPECTED = {
    "fully_async_qwen2.5_0.5b.sh": {
        "mode": "latest-synced", "on_update": "finish", "interval": 5, "engines": 1, "rm_type": "deepscaler",
        "n": 4, "max_new_tokens": 2048, "rollout_gpus": 2, "train_gpus": 1,
    },
    "moe_qwen3_30b_a3b.sh": {
        "mode": "latest-synced", "on_update": "cancel", "interval": 20, "engines": 1, "rm_type": "deepscaler",
        "n": 16, "max_new_tokens": 16384, "rollout_gpus": 4, "train_gpus": 8,
    },
    "checkpoint_sweep.sh": {
        "mode": "checkpoint", "on_update": "finish", "interval": None, "engines": 1, "rm_type": "math",
        "n": 1, "max_new_tokens": 1024, "rollout_gpus": 2, "train_gpus": 2,
    },
}  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS)
def test_slimes_parser_takes_it_and_means_the_same(script: str, slime_dir: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (tmp_path / "model_torch_dist").mkdir()
    (model / "config.json").write_text(json.dumps(MOE if "moe" in script else DENSE))
    words = submitted(script, tmp_path / "run", slime_dir=slime_dir, model=model)
    setup = Path(os.environ["SETUP_DIR"]).absolute()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (slime_dir, *STANDINS, ROOT))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "SLIME_CPU": "1",
        "SLIME_ACCELERATOR": "cpu",
        "WANDB_MODE": "offline",
    }
    done = subprocess.run(
        [str(setup / "venv" / "bin" / "python"), "-c", PROGRAM, *words[4:]],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.rsplit("SETTINGS ", 1)[1]) == EXPECTED[script]
