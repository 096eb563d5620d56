"""The service as a person at a terminal ends it: Ctrl-C, a second one where that is too slow; then again."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fakes.engine import FakeEngine
from fakes.engine_checkpoint import write_checkpoint

from live_eval.channel import ChannelClient, socket_path
from live_eval.config import EngineSettings, HttpSettings, ServiceConfig, StoreSettings
from live_eval.errors import TransportError
from live_eval.evaluation.datasets import EvalSetConfig
from live_eval.results.reader import LedgerReader
from live_eval.rundir import SERVICE_SOCKET, RunDir
from live_eval.scheduling.config import SchedulerConfig
from protocol.messages import ServiceStatus, StatusRequest, SubmitCheckpoint

if TYPE_CHECKING:
    from fakes.engine_http import Reply

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 30.0


class DeafEngine(FakeEngine):
    """While `deaf`, it never answers an abort; `shouted_at` tells that one came."""

    deaf = False
    answers = True
    """Whether it answers at all; else it is still starting for who attaches to it."""
    shouted_at: asyncio.Event

    async def _handle(self, method: str, path: str, body: Any) -> Reply:
        if not self.answers:
            await asyncio.sleep(3600)
        if self.deaf and path == "/abort_request":
            self.shouted_at.set()
            await asyncio.sleep(3600)
        return await super()._handle(method, path, body)


class Terminal:
    """A run directory, its engine, and the lives of its service."""

    def __init__(self, root: Path, engine: DeafEngine, base: Path) -> None:
        self.engine = engine
        self.run_dir = RunDir(root)
        self.checkpoint = write_checkpoint(root.parent / "step_7", seed=7)
        data = root.parent / "a.jsonl"
        data.write_text('{"prompt": "x", "label": "y"}\n' * 2)
        self.run_dir.make()
        ServiceConfig(
            run_id="run",
            run_dir=root,
            base=base,
            datasets=(EvalSetConfig(name="a", path=data),),
            scheduler=SchedulerConfig(datasets=("a",)),
            store=StoreSettings(max_bytes=1 << 20),
            engines=EngineSettings(addresses=(engine.url,), device="cpu"),
            http=HttpSettings(),
        ).save(self.run_dir.config)

    @asynccontextmanager
    async def life(self, state: str = "serving") -> AsyncIterator[asyncio.subprocess.Process]:
        """A service that is as far as this."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "live_eval.service",
            str(self.run_dir.config),
            cwd=ROOT,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            await self.until(state, process)
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def until(self, state: str, process: asyncio.subprocess.Process) -> None:
        async with asyncio.timeout(WAIT_S):
            while True:
                assert process.returncode is None
                try:
                    status = await self.ask(StatusRequest())
                except TransportError:
                    status = None
                if isinstance(status, ServiceStatus) and status.state == state:
                    return
                await asyncio.sleep(0.02)

    async def ask(self, message: Any) -> Any:
        async with ChannelClient(socket_path(self.run_dir.root, SERVICE_SOCKET)) as client:
            return await client.request(message, timeout_s=10)

    async def submit(self) -> None:
        """Let the checkpoint be evaluated, and return while its requests are at the engine."""
        await self.ask(SubmitCheckpoint(path=str(self.checkpoint)))
        async with asyncio.timeout(WAIT_S):
            while not self.engine.num_running:  # noqa: ASYNC110 - the fake has no event for it
                await asyncio.sleep(0.01)

    def jobs(self) -> dict[str, tuple[str, str, int]]:
        with LedgerReader.open_readonly(self.run_dir.ledger) as ledger:
            return {row.job_id: (row.status.value, row.reason, row.attempt) for row in ledger.jobs()}


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    base = write_checkpoint(tmp_path / "base", seed=0)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(DeafEngine(model=base, tokens_s=3600.0))
        yield Terminal(tmp_path / "run", engine, base)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_one_signal_ends_all_jobs_with_a_reason_and_leaves_the_engine_idle(
    terminal: Terminal, number: signal.Signals
) -> None:
    async with terminal.life() as process:
        await terminal.submit()
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), WAIT_S) == 0
    assert terminal.jobs() == {"c1/a": ("cancelled", "shutdown", 1)}
    assert terminal.engine.num_running == 0
    with pytest.raises(TransportError):
        await terminal.ask(StatusRequest())
    with LedgerReader.open_readonly(terminal.run_dir.ledger) as ledger:
        assert ledger.datasets()["a"][0]["description"]["num_rows"] == 2


async def test_a_second_ctrl_c_ends_it_at_once_and_the_next_start_runs_the_job_again(
    terminal: Terminal,
) -> None:
    engine = terminal.engine
    engine.shouted_at = asyncio.Event()
    async with terminal.life() as process:
        await terminal.submit()
        engine.deaf = True
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(engine.shouted_at.wait(), WAIT_S)
        process.send_signal(signal.SIGINT)
        assert await ended(process) == (-signal.SIGINT, False)
    assert terminal.jobs() == {"c1/a": ("running", "", 1)}
    engine.deaf, engine.tokens_s = False, 0.0
    async with terminal.life() as process:
        async with asyncio.timeout(WAIT_S):
            while terminal.jobs()["c1/a"][0] != "succeeded":  # noqa: ASYNC110 - a question to a database
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), WAIT_S) == 0
    assert terminal.jobs()["c1/a"] == ("succeeded", "completed", 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_while_it_starts_ends_it_without_a_trace(
    terminal: Terminal, number: signal.Signals
) -> None:
    terminal.engine.answers = False
    async with terminal.life("starting") as process:
        process.send_signal(number)
        assert await ended(process) == (0, False)
    assert not socket_path(terminal.run_dir.root, SERVICE_SOCKET).exists()
    assert not terminal.run_dir.http_url.exists()


async def ended(process: asyncio.subprocess.Process) -> tuple[int, bool]:
    """Its exit status, and whether it printed a traceback."""
    _, text = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode is not None
    return process.returncode, b"Traceback" in text
