"""Who may import whom, and what a light module must not load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol", "live_eval", "slime_patch")
HEAVY = {"torch", "ray", "sglang", "wandb", "transformers", "matplotlib", "slime"}

PURE = [
    "live_eval.scheduling",
    "live_eval.scheduling.scheduler",
    "live_eval.subscriber.session",
    "live_eval.store.retention",
    "live_eval.evaluation.metrics",
    "live_eval.channel",
    "live_eval.cli",
    "slime_patch.hooks",
    "slime_patch.run",
    "slime_patch.__main__",
    "slime_patch.settings",
    "slime_patch.tap",
]

LEAVES = {
    f"live_eval.{name}"
    for name in (
        "errors",
        "reasons",
        "targets",
        "digests",
        "tensor_files",
        "channel",
        "collective",
        "rundir",
        "processes",
        "process_memory",
        "sqlite",
        "plain",
        "mailbox",
    )
}
MIDDLE = {f"live_eval.{name}" for name in ("engines", "evaluation", "scheduling", "results", "subscriber")}
TOP = {
    "live_eval.coordinator",
    "live_eval.config",
    "live_eval.service",
    "live_eval.demo",
    "live_eval.commands",
}

# Layer -> the layers below it. A module that is in no layer fails the test: give it a place here.
MAY_IMPORT = {
    "protocol": set(),
    **{leaf: {"protocol"} | LEAVES for leaf in LEAVES},
    "live_eval.store": {"protocol"} | LEAVES,
    "live_eval.publisher": {"protocol"} | LEAVES,
    **{part: {"protocol", "live_eval.store"} | LEAVES for part in MIDDLE},
    "live_eval.coordinator": {"protocol", "live_eval.store", "live_eval.config"} | MIDDLE | LEAVES,
    "live_eval.config": {"protocol", "live_eval.store"} | MIDDLE | LEAVES,
    "live_eval.http": {"protocol", "live_eval.store", "live_eval.coordinator", "live_eval.config"}
    | MIDDLE
    | LEAVES,
    "live_eval.service": {
        "protocol",
        "live_eval.store",
        "live_eval.coordinator",
        "live_eval.config",
        "live_eval.http",
    }
    | MIDDLE
    | LEAVES,
    "live_eval.demo": {"protocol", "live_eval.store", "live_eval.publisher", "live_eval.http"}
    | TOP
    | MIDDLE
    | LEAVES,
    "live_eval.commands": {"protocol", "live_eval.store", "live_eval.http"} | TOP | MIDDLE | LEAVES,
    "live_eval.cli": {"live_eval.commands", "live_eval.errors", "live_eval.plain"},
    # The outermost: it uses live-eval, and nothing of live-eval knows of it.
    "slime_patch": {
        "protocol",
        "live_eval.store",
        "live_eval.publisher",
        "live_eval.config",
        "live_eval.service",
    }
    | MIDDLE
    | LEAVES,
}


def loaded_by(module: str) -> set[str]:
    """Names of all top-level packages that a fresh interpreter has after importing `module`."""
    program = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def sources() -> list[Path]:
    """All modules of the product; stand-ins for compiled packages are not part of it."""
    found = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    return sorted(path for path in found if "stubs" not in path.parts)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "live_eval" else parts[0]


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute module) of every import of ours in a file; the bare `live_eval` has no code."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            base = node.module or ""
            names = [f"{base}.{alias.name}" for alias in node.names] if base == "live_eval" else [base]
        else:
            continue
        for name in names:
            if name.split(".")[0] in PACKAGES and name != "live_eval":
                yield node.lineno, name


def test_protocol_loads_neither_torch_nor_ray_nor_live_eval() -> None:
    modules = [module_name(path) for path in sources() if "protocol" in path.relative_to(ROOT).parts[:1]]
    assert loaded_by(", ".join(modules)).isdisjoint(HEAVY | {"live_eval"})


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_load_nothing_heavy(module: str) -> None:
    assert loaded_by(module).isdisjoint(HEAVY)


def test_every_module_has_a_layer() -> None:
    homeless = {module_name(path) for path in sources() if layer_of(module_name(path)) not in MAY_IMPORT}
    assert homeless <= {"live_eval"}


def test_imports_run_downward_only() -> None:
    upward = [
        f"{path.relative_to(ROOT)}:{line}: {layer} imports {imported}"
        for path in sources()
        if (layer := layer_of(module_name(path))) in MAY_IMPORT
        for line, imported in imported_modules(path)
        if layer_of(imported) != layer and layer_of(imported) not in MAY_IMPORT[layer]
    ]
    assert upward == []
