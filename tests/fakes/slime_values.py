"""What slime's own code makes of an eval configuration, from a checkout that is only read.

Runs two files of slime's without importing the package, whose other modules want a GPU machine.

    cd tests && python -m fakes.slime_values SLIME_DIR     # writes the frozen table anew
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

from live_eval.evaluation.eval_options import DEFAULTS

DATA = Path(__file__).resolve().parents[1] / "unit" / "evaluation" / "data"
TABLE = DATA / "slime_eval_values.json"
CASES: dict[str, dict[str, Any]] = {
    "multi_task": {"label_key": "label", "eval_input_key": "prompt", "rollout_temperature": 0.8},
    "mapping": {"eval_temperature": 0.3, "eval_max_response_len": 64, "rollout_stop": ["</s>"]},
    "everything": {
        "rollout_max_response_len": 256, "eval_min_new_tokens": 2, "eval_top_k": 5, "custom_rm_path": "x.y",
        "rollout_stop_token_ids": [9], "eval_tool_key": "tools2", "n_samples_per_eval_prompt": 3,
    },
}  # fmt: skip
"""Name of a file in DATA -> options of the command line."""


def slime_datasets(slime_dir: Path, path: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Every field of every dataset, as slime resolves them for these arguments."""
    resolve = _function(slime_dir / "slime/utils/arguments.py", "_resolve_eval_datasets", _config(slime_dir))
    args = argparse.Namespace(**{**DEFAULTS, **options, "eval_config": str(path), "eval_prompt_data": None})
    return [asdict(dataset) for dataset in resolve(args)]


def _config(slime_dir: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "slime_eval_config", slime_dir / "slime/utils/eval_config.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _function(path: Path, name: str, config: ModuleType) -> Any:
    """One function of a file whose imports cannot be had here."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    names = {**vars(config), "logger": logging.getLogger("slime")}
    exec(compile(ast.Module(body=list(body), type_ignores=[]), str(path), "exec"), names)
    return names[name]


def table(slime_dir: Path) -> dict[str, Any]:
    """The frozen table, made anew."""
    return {
        name: {"options": options, "datasets": slime_datasets(slime_dir, DATA / f"{name}.yaml", options)}
        for name, options in CASES.items()
    }


if __name__ == "__main__":
    TABLE.write_text(json.dumps(table(Path(sys.argv[1])), indent=1, sort_keys=True) + "\n", encoding="utf-8")
