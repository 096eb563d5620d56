"""Faults of the real SGLang server: killed, orphaned, failing a load. What comes back is proven again.

The model is tied and in bfloat16, so that both are seen on the real engine.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.tiny_model import write_tiny_model

from live_eval.engines import serve
from live_eval.engines.engine import EngineSpec, EngineState
from live_eval.engines.group import EngineGroup
from live_eval.engines.pin import PinTarget
from live_eval.engines.requests import RequestsLost
from live_eval.errors import LoadFailed
from live_eval.evaluation.source import GenRequest

if TYPE_CHECKING:
    from live_eval.engines.lease import Lease

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


def remains(group: int) -> set[Path]:
    """Files that a running server would leave behind if nobody removed them."""
    return {*serve.shared_files(group), Path(os.readlink(f"/proc/{group}/cwd"))}


async def scores(lease: Lease) -> list[tuple[int, ...]]:
    """Greedy tokens for a few prompts: what an eval would be computed from."""
    sampling = {"temperature": 0, "max_new_tokens": 16, "ignore_eos": True}
    requests = [
        GenRequest(request_id=f"s{n}-{time.monotonic_ns()}", text=f"prompt {n}", sampling=sampling)
        for n in range(6)
    ]
    return [answer.output_ids for answer in await lease.generate(requests)]


async def test_killed_engines_and_failed_loads_end_in_a_new_process_with_the_same_scores(
    tmp_path: Path,
) -> None:
    base = write_tiny_model(tmp_path / "base", seed=0, dtype="bfloat16", tied=True)
    one = PinTarget(
        label="1",
        path=write_tiny_model(tmp_path / "v1", seed=1, dtype="bfloat16", tied=True),
        digest="digest-1",
    )
    gone = write_tiny_model(tmp_path / "gone", seed=2, dtype="bfloat16", tied=True)
    vanishing = PinTarget(label="2", path=gone, digest="digest-2", verify=lambda: shutil.rmtree(gone))
    states: list[str] = []
    group = EngineGroup(
        [EngineSpec(name="e0", model_path=base, device="cpu")],
        work_dir=tmp_path / "work",
        on_state=lambda _name, state, _detail: states.append(state.value),
    )
    (engine,) = group.engines
    files: set[Path] = set()
    await group.start()
    try:
        async with await group.lease("a") as lease:
            await lease.pin(one)
            assert engine.flavour.endswith("/bfloat16/cpu/tp1")
            first_scores = await scores(lease)
            await lease.check_after()

            # kill -9 in the middle of a generate.
            assert engine.process is not None
            killed = engine.process.pid
            files |= remains(killed)
            endless = [
                GenRequest(request_id=f"e{n}", text="x", sampling={"max_new_tokens": 450, "ignore_eos": True})
                for n in range(32)
            ]
            running = asyncio.create_task(lease.generate(endless))
            await asyncio.sleep(0.3)
            os.kill(killed, signal.SIGKILL)
            began = time.monotonic()
            with pytest.raises(RequestsLost) as caught:
                await running
            assert time.monotonic() - began < 30
            assert len(caught.value.lost) == 32
            await lease.repin()
            assert lease.report is not None
            assert lease.report.known
            assert await scores(lease) == first_scores
            await lease.check_after()
            assert serve.group_members(killed) == []

            # A load that the engine fails: what it holds is unknown, so it is not used again.
            assert engine.process is not None
            failed = engine.process.pid
            files |= remains(failed)
            with pytest.raises(LoadFailed, match="400"):
                await lease.pin(vanishing)
            assert engine.state is not EngineState.PINNED
            report = await lease.pin(one)
            assert report.known
            assert await scores(lease) == first_scores
            assert engine.process.pid != failed
            assert serve.group_members(failed) == []
            last = engine.process.pid
            files |= remains(last)
    finally:
        await group.close()
    assert states[:4] == ["ready", "pinned", "quarantined", "starting"]
    assert states[4:9] == ["ready", "pinned", "ready", "quarantined", "starting"]
    assert states[9:] == ["ready", "pinned", "ready"]
    assert serve.group_members(last) == []
    assert len(files) >= 6
    assert not [file for file in files if file.exists()]


START = """
import asyncio, sys, time
from pathlib import Path
from live_eval.engines.launch import EngineProcess, launch_settings
process = EngineProcess.start(launch_settings(Path(sys.argv[1]), device="cpu"), log=Path(sys.argv[2]))
print(process.pid, flush=True)
asyncio.run(process.wait_ready(400))
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("when", ["importing", "serving"])
def test_a_real_server_and_its_workers_die_with_their_starter(tmp_path: Path, when: str) -> None:
    base = write_tiny_model(tmp_path / "base", seed=0)
    command = [sys.executable, "-c", START, str(base), str(tmp_path / "e0.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        group = int(starter.stdout.readline())
        if when == "serving":
            assert starter.stdout.readline() == "ready\n"
            # The server itself, the scheduler, the detokenizer.
            assert len(serve.group_members(group)) >= 3
        else:
            time.sleep(5)
        files = remains(group)
        starter.kill()
    deadline = time.monotonic() + 60
    while serve.group_members(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert serve.group_members(group) == []
    assert not [file for file in files if file.exists()]
