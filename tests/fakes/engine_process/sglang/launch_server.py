"""A server process that starts in a blink: a FakeEngine, a child in its group, shared memory.

FAKE_ENGINE_FAIL=N in the environment: exit with status N instead of serving. FAKE_ENGINE_LOAD_S=N: a
load takes so many seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import mmap
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fakes.engine import FakeEngine


async def serve(model: Path, dtype: str, port: int) -> None:
    """Serve until killed."""
    load_s = float(os.environ.get("FAKE_ENGINE_LOAD_S", "0"))
    async with FakeEngine(model=model, dtype=dtype, port=port, tokens_s=2.0, load_s=load_s):
        await asyncio.Event().wait()


def main() -> None:
    """Behave like SGLang's main program as far as the tests look."""
    # Like SGLang's, a named semaphore that only a resource tracker or the starter can remove.
    lock = multiprocessing.get_context("spawn").Lock()
    if status := os.environ.get("FAKE_ENGINE_FAIL"):
        print("RuntimeError: no such device", lock._semlock.name)  # type: ignore[attr-defined]
        sys.exit(int(status))
    parser = argparse.ArgumentParser()
    for name in ("--model-path", "--dtype", "--host", "--port", "--tp-size", "--device"):
        parser.add_argument(name)
    options, _ = parser.parse_known_args()
    # A worker that would outlive its parent, a file in the temporary directory, mapped shared memory.
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(tempfile.mkstemp()[1]).touch()
    name = f"/dev/shm/sglang_loads_fake_{os.getpid()}.shm"
    with open(name, "w+b") as file:
        file.truncate(mmap.PAGESIZE)
        shared = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    asyncio.run(serve(Path(options.model_path), options.dtype, int(options.port)))
    shared.close()


if __name__ == "__main__":
    main()
