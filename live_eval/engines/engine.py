"""One engine over its whole life: launched or attached, lost and brought back.

Owns the server (or the address of somebody else's), its client and its state; knows nothing of
versions but what the engine was last seen to hold. Invariant: an engine is usable only between a
proven start and the first sign of trouble, and after trouble only as a new process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from live_eval.engines.client import EngineRefused, SGLangClient
from live_eval.engines.launch import (
    START_TIMEOUT_S,
    EngineProcess,
    LaunchSettings,
    checkpoint_dtype,
    launch_settings,
)
from live_eval.engines.pin import Held
from live_eval.errors import (
    ConfigError,
    EngineDied,
    EngineError,
    EngineTimeout,
    LoadFailed,
    PinMismatch,
    StoreError,
)
from live_eval.store.checkpoint import read_headers

if TYPE_CHECKING:
    from live_eval.engines.client import ServerInfo
    from live_eval.engines.fingerprint import Vector
    from live_eval.engines.pin import EnginePin

logger = logging.getLogger(__name__)

T = TypeVar("T")
ATTACH_POLL_S = 1.0
MAX_BACK_OFF_S = 30.0


class EngineState(StrEnum):
    """STARTING -> READY -> PINNED -> READY ...; from each of them -> QUARANTINED -> STARTING, or -> DEAD."""

    STARTING = "starting"
    """Not yet proven to generate."""
    READY = "ready"
    """Generates; holds no verified version, so it gets no prompts."""
    PINNED = "pinned"
    """Holds the verified version of the current lease."""
    QUARANTINED = "quarantined"
    """Dead, or in an unknown state; it is being killed."""
    DEAD = "dead"
    """Given up: its restarts are spent, or it cannot serve this model."""


Life = asyncio.Future[str]
"""One life of an engine, from a start to the trouble that ends it: then it is done, and says why."""

StateListener = Callable[[str, EngineState, str], None]
"""Told of each change: the engine's name, its new state, and why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSpec:
    """One engine of the group."""

    name: str
    model_path: Path
    """Checkpoint that it is launched with; for an attached one the same model on this host."""
    device: str = "cuda"
    """`cpu` for the embedded engine."""
    dtype: str | None = None
    """None: the checkpoint's own."""
    tp_size: int = 1
    first_gpu: int = 0
    """Engines of one host need different ones: engine n takes GPUs n * tp_size and up."""
    extra_args: tuple[str, ...] = ()
    url: str | None = None
    """Address of a running server to attach to; None launches one."""
    python: Path | None = None
    """Interpreter of the environment that has SGLang; None: this process' own."""

    def settings(self) -> LaunchSettings:
        """Arguments and environment of the server to launch."""
        return launch_settings(
            self.model_path,
            device=self.device,
            dtype=self.dtype,
            tp_size=self.tp_size,
            first_gpu=self.first_gpu,
            extra_args=self.extra_args,
            python=self.python,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartPolicy:
    """How an engine that was lost comes back."""

    max_restarts: int = 5
    """In a row without a verified pin between them; then the engine is dead."""
    back_off_s: float = 1.0
    """Before the second restart in a row; doubles up to 30 s. The first is at once."""
    start_timeout_s: float = START_TIMEOUT_S


class Engine:
    """One SGLang server and its state. Create it in an event loop, start() it, close() it."""

    def __init__(
        self,
        spec: EngineSpec,
        *,
        log: Path,
        probe: Callable[[SGLangClient], Awaitable[Vector]],
        policy: RestartPolicy,
        on_state: StateListener,
    ) -> None:
        self.spec = spec
        self.name = spec.name
        self.flavour = ""
        self.held: Held | None = None
        self.state = EngineState.STARTING
        self.process: EngineProcess | None = None
        self.life: Life = asyncio.get_running_loop().create_future()
        self._log = log
        self._probe = probe
        self._policy = policy
        self._on_state = on_state
        self._client: SGLangClient | None = None
        self._num_starts = 0
        self._must_be_new = False
        self._task: asyncio.Task[None] | None = None

    @property
    def client(self) -> SGLangClient:
        """Client of the current server; EngineDied if there is none now."""
        if self._client is None:
            raise EngineDied(f"engine {self.name} is {self.state}")
        return self._client

    @property
    def usable(self) -> bool:
        """Whether it can be pinned or is pinned."""
        return self.state in (EngineState.READY, EngineState.PINNED)

    def start(self) -> None:
        """Begin to bring it up, in the background."""
        self._task = asyncio.create_task(self._supervise(), name=f"engine-{self.name}")

    async def close(self) -> None:
        """End the server if it is ours, and everything that watches it."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def quarantine(self, error: EngineError, *, life: Life) -> None:
        """Take it out of use now; it is killed and launched again in the background.

        `life` is the one in which the error arose: an error of an earlier life is old news.
        """
        if not self._lives(life):
            return
        self._must_be_new = isinstance(error, (LoadFailed, PinMismatch))
        self._end_life(str(error))

    def pinned(self, pin: EnginePin, *, life: Life) -> bool:
        """It holds a verified version: it may be prompted, and its earlier troubles are over.

        False, and nothing is changed, if the life in which it was pinned is over.
        """
        if not self._lives(life):
            return False
        self.held = pin.held
        self._num_starts = 0
        self._set(EngineState.PINNED, pin.label)
        return True

    def unpinned(self) -> None:
        """It gets no prompts until its next pin."""
        if self.state is EngineState.PINNED:
            self._set(EngineState.READY, "")

    async def while_alive(self, call: Coroutine[None, None, T]) -> T:
        """The call's result; EngineDied as soon as this life is over, and the call is cancelled."""
        life, task = self.life, asyncio.ensure_future(call)
        try:
            await asyncio.wait((task, life), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise EngineDied(f"engine {self.name} was lost: {life.result()}")
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    def _lives(self, life: Life) -> bool:
        return self.usable and self.life is life and not life.done()

    async def _supervise(self) -> None:
        try:
            while self._num_starts <= self._policy.max_restarts:
                if self.state is not EngineState.STARTING:
                    self._set(EngineState.STARTING, "")
                await self._live_once()
                await self._take_down()
            self._set(EngineState.DEAD, f"{self._policy.max_restarts} restarts in a row did not help")
        except ConfigError as error:
            self._set(EngineState.DEAD, str(error))
        except Exception as error:
            # Nobody awaits this task while it runs: a fault in it must show as a dead engine.
            logger.exception("engine %s: its supervisor failed", self.name)
            self._set(EngineState.DEAD, repr(error))
        finally:
            await self._take_down()

    async def _live_once(self) -> None:
        """From one start to the trouble that ends it."""
        if self._num_starts > 1:
            await asyncio.sleep(min(self._policy.back_off_s * 2 ** (self._num_starts - 2), MAX_BACK_OFF_S))
        self._num_starts += 1
        self.life = asyncio.get_running_loop().create_future()
        try:
            await (self._attach(self.spec.url) if self.spec.url else self._launch())
        except EngineError as error:
            return self._end_life(str(error))
        self._set(EngineState.READY, self.flavour)
        if self.process is None:
            await asyncio.shield(self.life)
            return
        exit_task = asyncio.create_task(self.process.wait())
        try:
            await asyncio.wait((exit_task, self.life), return_when=asyncio.FIRST_COMPLETED)
        finally:
            exit_task.cancel()
        if not self.life.done():
            self._end_life(f"the server ended with status {exit_task.result()}")

    async def _launch(self) -> None:
        self.process = EngineProcess.start(self.spec.settings(), log=self._log, name=self.name)
        await self.process.wait_ready(self._policy.start_timeout_s)
        await self._meet(self.process.url)

    async def _attach(self, url: str) -> None:
        """Wait until a server answers at the address; after a failed load, until a new one does."""
        told = False
        async with SGLangClient(url, name=self.name) as client:
            while True:
                try:
                    await client.model_info()
                    if not self._must_be_new:
                        break
                except (EngineDied, EngineRefused):
                    # A restart takes longer than a poll, so whoever answers next has been started since.
                    self._must_be_new = False
                except EngineTimeout as error:
                    logger.debug("engine %s: %s", self.name, error)
                if not told:
                    told = True
                    wanted = "a new server" if self._must_be_new else "a server"
                    self._set(EngineState.STARTING, f"waits for {wanted} at {url}")
                await asyncio.sleep(ATTACH_POLL_S)
        self._must_be_new = False
        await self._meet(url)

    async def _meet(self, url: str) -> None:
        """Learn what the server is and what it holds now."""
        self._client = SGLangClient(url, name=self.name)
        info = await self._client.server_info()
        self._check_dtype(info)
        await asyncio.to_thread(self._check_shapes, Path(info.model_path))
        self.flavour = info.flavour
        self.held = Held(vector=await self._probe(self._client), checksum=await self._client.checksum())

    def _check_dtype(self, info: ServerInfo) -> None:
        wanted = self.spec.dtype or checkpoint_dtype(self.spec.model_path)
        runs = info.dtype
        if runs == "auto":
            # SGLang's rule: half precision for a float32 checkpoint, else the checkpoint's own.
            runs = "float16" if wanted == "float32" else wanted
        if {"half": "float16", "float": "float32"}.get(runs, runs) != wanted:
            raise ConfigError(
                f"engine {self.name} computes in {runs}, the checkpoint is {wanted}: launch it with "
                f"--dtype {wanted}, or state the engine's dtype"
            )

    def _check_shapes(self, served: Path) -> None:
        """ConfigError if the server runs a model of other shapes: a load of ours would end it.

        `served`: what it was launched with, or loaded last. Where that is not to be seen from here, or
        no checkpoint, nothing is known.
        """
        try:
            theirs, ours = _shapes(served), _shapes(self.spec.model_path)
        except (StoreError, OSError):
            return
        for name in theirs.keys() & ours.keys():
            if theirs[name] != ours[name]:
                raise ConfigError(
                    f"engine {self.name} serves {served}, where {name} is {list(theirs[name])}; in "
                    f"{self.spec.model_path} it is {list(ours[name])}: attach an engine of that model"
                )

    async def _take_down(self) -> None:
        self.held = None
        if self.process is not None:
            await self.process.stop()
            self.process = None
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _end_life(self, why: str) -> None:
        self._set(EngineState.QUARANTINED, why)
        if not self.life.done():
            self.life.set_result(why)

    def _set(self, state: EngineState, detail: str) -> None:
        logger.info("engine %s: %s -> %s %s", self.name, self.state, state, detail)
        self.state = state
        self._on_state(self.name, state, detail)


def _shapes(checkpoint: Path) -> dict[str, tuple[int, ...]]:
    headers = read_headers(checkpoint).values()
    return {name: tuple(slot.meta.shape) for header in headers for name, slot in header.slots.items()}
