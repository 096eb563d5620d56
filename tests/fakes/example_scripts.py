"""The scripts of examples/, run up to the command that they would submit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = ("fully_async_qwen2.5_0.5b.sh", "moe_qwen3_30b_a3b.sh", "checkpoint_sweep.sh")
RAY = """#!/usr/bin/env bash
printf '%s\\0' "$@" > "$SUBMITTED"
"""


def submitted(script: str, folder: Path, *, slime_dir: Path, model: Path) -> list[str]:
    """The words of the driver's command line, from `python3` on, with `ray` replaced by a recorder."""
    tools = folder / "tools"
    tools.mkdir(parents=True)
    (tools / "ray").write_text(RAY)
    (tools / "ray").chmod(0o755)
    names = ("MEGATRON_DIR", "DATA_PATH", "EVAL_DATA_PATH", "SAVE_DIR", "STORE_DIR", "OUTPUT_DIR")
    environment = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "SUBMITTED": str(folder / "submitted"),
        "SLIME_DIR": str(slime_dir),
        "MODEL_DIR": str(model),
        **{name: str(folder / name.lower()) for name in names},
    }
    arguments = [str(model), str(model)] if script == "checkpoint_sweep.sh" else []
    subprocess.run(
        ["bash", str(EXAMPLES / script), *arguments], env=environment, check=True, timeout=60, cwd=folder
    )
    words = (folder / "submitted").read_text().split("\0")[:-1]
    return words[words.index("--") + 1 :]
