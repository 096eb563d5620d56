"""The main program of an engine's process, around a program that stands where SGLang's would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from live_eval.engines import serve

SERVER = """
import multiprocessing, os, sys

def work(pipe):
    pipe.send(("marker" in dir(sys), os.getpgrp()))

if __name__ == "__main__":
    multiprocessing.set_start_method("spawn", force=True)
    sys.marker = None
    here, there = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=work, args=(there,))
    worker.start()
    copied, group = here.recv()
    worker.join()
    print(sys.argv[1:], multiprocessing.get_start_method(), copied, group == os.getpid())
"""


@pytest.mark.parametrize(
    ("options", "method", "copied"), [((), "spawn", False), (("--fork-workers",), "fork", True)]
)
def test_workers_are_copies_only_where_that_is_asked_for(
    tmp_path: Path, options: tuple[str, ...], method: str, copied: bool
) -> None:
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text(SERVER)
    command = [
        sys.executable,
        "-P",
        serve.__file__,
        "--parent",
        str(os.getpid()),
        *options,
        "--",
        "--port",
        "1",
    ]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, start_new_session=True, timeout=60
    )
    assert done.stdout.strip() == f"['--port', '1'] {method} {copied} True", done.stderr
