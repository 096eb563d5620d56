"""The life of a server process: it ends with its group, its files and its starter, and comes back."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.engine_checkpoint import write_checkpoint

from live_eval.engines import serve
from live_eval.engines.client import SGLangClient
from live_eval.engines.engine import EngineSpec, EngineState, RestartPolicy
from live_eval.engines.group import EngineGroup, GroupSettings
from live_eval.engines.launch import EngineProcess, launch_settings
from live_eval.engines.pin import PinLimits, PinTarget
from live_eval.engines.requests import RequestsLost
from live_eval.errors import EngineDied, EngineTimeout, LoadFailed
from live_eval.evaluation.source import GenRequest

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def quick_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started processes find the fake sglang before the real one."""
    path = (TESTS / "fakes" / "engine_process", TESTS, TESTS.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(part) for part in path))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "base", seed=0)


def shared_of(pid: int) -> Path:
    return Path(f"/dev/shm/sglang_loads_fake_{pid}.shm")


async def test_a_server_leaves_nothing_behind(base: Path, tmp_path: Path) -> None:
    process = EngineProcess.start(launch_settings(base), log=tmp_path / "logs" / "e0.log")
    try:
        await process.wait_ready(30)
        assert len(serve.group_members(process.pid)) >= 2
        assert shared_of(process.pid).exists()
        private = Path(os.readlink(f"/proc/{process.pid}/cwd"))
        assert [entry.name[:3] for entry in private.iterdir()] == ["tmp"]
    finally:
        await process.stop()
    assert serve.group_members(process.pid) == []
    assert process.returncode == -signal.SIGKILL
    assert not shared_of(process.pid).exists()
    assert not private.exists()
    await process.stop()


async def test_a_server_of_another_environment_is_run_by_its_interpreter(base: Path, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\ntouch {tmp_path}/ran\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    process = EngineProcess.start(launch_settings(base, python=python), log=tmp_path / "e0.log")
    try:
        await process.wait_ready(30)
    finally:
        await process.stop()
    assert (tmp_path / "ran").exists()


async def test_a_server_can_be_reached_from_its_own_host_only(base: Path, tmp_path: Path) -> None:
    process = EngineProcess.start(launch_settings(base), log=tmp_path / "e0.log")
    try:
        await process.wait_ready(30)
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
        assert words[words.index(b"--host") + 1] == b"127.0.0.1"
        assert process.url.startswith("http://127.0.0.1:")
    finally:
        await process.stop()


async def test_a_server_that_fails_to_start_says_why(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_FAIL", "3")
    process = EngineProcess.start(launch_settings(base), log=tmp_path / "e0.log")
    with pytest.raises(EngineDied, match=r"ended with status 3(.|\n)*RuntimeError: no such device"):
        await process.wait_ready(30)
    (semaphore,) = re.findall(r"no such device /(\S+)", process.log_tail())
    await process.stop()
    assert not Path(f"/dev/shm/sem.{semaphore}").exists()


async def test_a_server_that_is_not_ready_in_time_says_so(base: Path, tmp_path: Path) -> None:
    process = EngineProcess.start(launch_settings(base), log=tmp_path / "e0.log")
    try:
        os.killpg(process.pid, signal.SIGSTOP)
        with pytest.raises(EngineTimeout, match="was not ready in 1 s"):
            await process.wait_ready(1.0)
    finally:
        await process.stop()
    assert serve.group_members(process.pid) == []


def test_a_server_dies_with_its_starter(base: Path, tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, time\n"
        "from pathlib import Path\n"
        "from live_eval.engines.launch import EngineProcess, launch_settings\n"
        "process = EngineProcess.start(launch_settings(Path(sys.argv[1])), log=Path(sys.argv[2]))\n"
        "asyncio.run(process.wait_ready(30))\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", code, str(base), str(tmp_path / "e0.log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        group = int(starter.stdout.readline())
        private = Path(os.readlink(f"/proc/{group}/cwd"))
        assert len(serve.group_members(group)) >= 2
        starter.kill()
    deadline = time.monotonic() + 30
    while serve.group_members(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert serve.group_members(group) == []
    assert not private.exists()
    assert not shared_of(group).exists()


def group_of(base: Path, work: Path, num: int = 1, **restarts: float) -> EngineGroup:
    specs = [EngineSpec(name=f"e{n}", model_path=base) for n in range(num)]
    policy = RestartPolicy(back_off_s=0.05, start_timeout_s=30, **restarts)  # pyright: ignore[reportArgumentType]
    settings = GroupSettings(restarts=policy, usable_timeout_s=30)
    return EngineGroup(specs, work_dir=work, settings=settings)


async def test_a_killed_server_comes_back_and_is_pinned_again(base: Path, tmp_path: Path) -> None:
    group = group_of(base, tmp_path / "work")
    target = PinTarget(label="1", path=write_checkpoint(tmp_path / "v1", seed=1), digest="d1")
    requests = [GenRequest(request_id=f"r{n}", text="x") for n in range(4)]
    (engine,) = group.engines
    await group.start()
    try:
        async with await group.lease("a") as lease:
            await lease.pin(target)
            running = asyncio.create_task(lease.generate(requests))
            await asyncio.sleep(0.3)
            assert engine.process is not None
            first = engine.process
            os.kill(first.pid, signal.SIGKILL)
            with pytest.raises(RequestsLost, match="4 of 4 requests are lost") as caught:
                await running
            assert caught.value.done == ()
            await lease.repin()
            assert lease.report is not None
            assert lease.report.known
            assert engine.process is not None
            assert engine.process.pid != first.pid
            assert serve.group_members(first.pid) == []
            assert {a.label for a in await lease.generate(requests)} == {"1"}
    finally:
        await group.close()
    assert engine.process is None


async def test_a_frozen_server_is_found_by_the_request_deadline(base: Path, tmp_path: Path) -> None:
    group = group_of(base, tmp_path / "work")
    group.settings = GroupSettings(restarts=group.settings.restarts, request_timeout_s=1.0)
    target = PinTarget(label="1", path=write_checkpoint(tmp_path / "v1", seed=1), digest="d1")
    await group.start()
    try:
        async with await group.lease("a") as lease:
            await lease.pin(target)
            process = group.engines[0].process
            assert process is not None
            os.killpg(process.pid, signal.SIGSTOP)
            with pytest.raises(RequestsLost, match=r"did not answer /generate in 1\.0 s"):
                await lease.generate([GenRequest(request_id="r0", text="x")])
            await lease.repin()
            assert serve.group_members(process.pid) == []
    finally:
        await group.close()


async def test_a_server_that_hangs_in_a_load_is_killed_and_made_again(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_LOAD_S", "3600")
    group = group_of(base, tmp_path / "work")
    group.settings = replace(group.settings, limits=PinLimits(load_s=2.0))
    target = PinTarget(label="1", path=write_checkpoint(tmp_path / "v1", seed=1), digest="d1")
    await group.start()
    try:
        async with await group.lease("a") as lease:
            await group.wait_usable(30)
            stuck = group.engines[0].process
            assert stuck is not None
            monkeypatch.delenv("FAKE_ENGINE_LOAD_S")
            with pytest.raises(LoadFailed, match="did not answer"):
                await lease.pin(target)
            await lease.pin(target)
            assert serve.group_members(stuck.pid) == []
            assert group.states() == {"e0": EngineState.PINNED}
    finally:
        await group.close()


async def test_restarts_in_a_row_are_bounded(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ENGINE_FAIL", "3")
    group = group_of(base, tmp_path / "work", max_restarts=2)
    await group.start()
    try:
        with pytest.raises(EngineDied, match="no engine is left: e0 is dead"):
            await group.wait_usable(60)
        assert group.states() == {"e0": EngineState.DEAD}
        async with await group.lease("a") as lease:
            target = PinTarget(label="1", path=write_checkpoint(tmp_path / "v1", seed=1))
            with pytest.raises(EngineDied, match="no engine is left"):
                await lease.pin(target)
    finally:
        await group.close()
    assert (tmp_path / "work" / "e0.log").read_text().count("no such device") == 3


async def test_two_groups_on_one_host_do_not_meet(base: Path, tmp_path: Path) -> None:
    groups = [group_of(base, tmp_path / f"work{n}", num=2) for n in range(2)]
    try:
        for group in groups:
            await group.start()
        async with asyncio.timeout(60):
            while not all(engine.usable for group in groups for engine in group.engines):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        urls = {engine.client.url for group in groups for engine in group.engines}
        assert len(urls) == 4
        for url in urls:
            async with SGLangClient(url) as client:
                assert (await client.model_info()).weight_version == "default"
    finally:
        await asyncio.gather(*(group.close() for group in groups))


def test_serve_refuses_a_group_that_is_not_its_own() -> None:
    command = [sys.executable, "-P", serve.__file__, "--parent", str(os.getpid()), "--", "--port", "1"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode != 0
    assert "a process group of its own" in found.stderr
