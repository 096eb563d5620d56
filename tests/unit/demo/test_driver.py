"""What the driver does where the service does not come up."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from live_eval.demo.driver import DemoDriver, DemoFailed
from live_eval.demo.plan import DemoOptions
from live_eval.demo.supervise import Child
from live_eval.demo.view import DemoView
from live_eval.rundir import RunDir

PROGRAM = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1]).parent
(folder / "http.url").write_text("http://127.0.0.1:9\\n")
deadline = time.monotonic() + 30
while not (folder / "told").exists() and time.monotonic() < deadline:
    time.sleep(0.05)
print("2026-01-02 03:04:05,678 __main__ the port is taken")
sys.exit(2)
"""


class Told(io.StringIO):
    """Makes a file when the page's address has been told."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def write(self, text: str) -> int:
        if "the page:" in text:
            self._file.touch()
        return super().write(text)


@asynccontextmanager
async def opens_never(*args: object, **named: object) -> AsyncIterator[None]:
    await asyncio.Event().wait()
    yield


async def test_a_service_that_cannot_start_ends_the_demo_at_once_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "child_program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def child(name: str, module: str, *rest: Any, **named: Any) -> Child:
        return Child(name, "child_program", *rest, **named)

    monkeypatch.setattr("live_eval.demo.driver.Child", child)
    monkeypatch.setattr("live_eval.demo.driver.open_transport", opens_never)
    options = DemoOptions(
        out=tmp_path / "run",
        num_versions=1,
        seed=0,
        transport="ray",
        on_update="finish",
        interval=1,
        num_samples=1,
        checkpoints=(),
        num_engines=1,
        json_file=None,
        http_port=0,
    )
    run_dir = RunDir(options.out)
    run_dir.make()
    out = Told(run_dir.root / "told")
    view = DemoView(Console(file=out, width=200))
    with pytest.raises(DemoFailed, match=r"did not start: the port is taken; see .*service\.log"):
        await DemoDriver(options, run_dir, view, run_id="run").run()
    told = out.getvalue()
    assert "started again" not in told
    assert told.count("the page: http://127.0.0.1:9/") == 1, "while the service still starts"
