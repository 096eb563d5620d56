"""A checkout of slime in miniature: hand-written, its scripts run, slime's places for insertions are in it.

`copy_checkout` makes one to patch; `run_script` runs a script of it and returns who was called with what.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MINIATURE = HERE / "slime_checkout"
RECORDING_HOOKS = HERE / "recording_hooks"
"""Put on the path, it is the `slime_patch` that the inserted lines find."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """A script's end."""

    status: int
    errors: str
    calls: list[dict[str, Any]]


def copy_checkout(root: Path) -> Path:
    """A fresh copy of the miniature at `root`."""
    shutil.copytree(MINIATURE, root, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def contents(root: Path) -> dict[str, bytes]:
    """All Python files of a checkout, and whatever else lies there, by name."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def run_script(root: Path, *arguments: str, path: tuple[Path, ...] = ()) -> Done:
    """Run e.g. ("train.py", "--num-rollout", "2") with nothing but the checkout and `path` importable."""
    log = root.parent / "calls.jsonl"
    log.unlink(missing_ok=True)
    search = os.pathsep.join(str(entry) for entry in (root, *path))
    done = subprocess.run(
        # Without site-packages: this project is installed there.
        [sys.executable, "-S", str(root / arguments[0]), *arguments[1:]],
        env={**os.environ, "PYTHONPATH": search, "CALLS": str(log), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return Done(status=done.returncode, errors=done.stderr, calls=[json.loads(line) for line in lines])
