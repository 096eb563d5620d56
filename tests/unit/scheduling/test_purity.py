from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import live_eval.scheduling

PACKAGE = Path(live_eval.scheduling.__file__).parent
OUTSIDE = {"asyncio", "socket", "sqlite3", "threading", "torch", "numpy", "msgspec", "httpx", "ray"}
CLOCKS = {"time", "datetime", "random", "logging", "os", "pathlib"}


def test_importing_the_scheduler_loads_nothing_that_could_do_io_or_run_tasks() -> None:
    code = "import sys; import live_eval.scheduling.scheduler; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=PACKAGE.parent.parent,
        timeout=60,
    ).stdout.split()
    assert "live_eval.scheduling.scheduler" in loaded
    assert OUTSIDE.isdisjoint(loaded)


def test_no_module_of_the_package_has_a_clock_or_files() -> None:
    for path in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            used = {name.split(".")[0] for name in names} & (CLOCKS | OUTSIDE)
            assert not used, f"{path.name} imports {used}"
