"""Runs the demo's processes: engines and service first, then the trainer, then the drain.

    trainer --sync--> receiver --store--> service --> eval engines
       `------broadcast------> rollout engine (transport nccl)

A service or receiver that dies is started again; training never is. Invariant: whatever happens,
no process of the demo is left when `run` returns or raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from live_eval.channel import ChannelClient, socket_path
from live_eval.demo.plan import STEPS_PER_ROUND, service_config
from live_eval.demo.report import trainer_records
from live_eval.demo.supervise import Child, end_on_sigterm, last_words
from live_eval.demo.trainer_config import TrainerConfig
from live_eval.demo.transports import open_transport, remove_socket_place
from live_eval.errors import LiveEvalError, TransportError
from live_eval.rundir import SERVICE_SOCKET
from protocol.messages import (
    EngineEvent,
    JobEvent,
    ServiceStatus,
    StatusRequest,
    SubmitCheckpoint,
    Subscribe,
    TrainingEnded,
)

if TYPE_CHECKING:
    from live_eval.demo.plan import DemoOptions
    from live_eval.demo.transports import Transport
    from live_eval.demo.view import DemoView
    from live_eval.rundir import RunDir
    from protocol.messages import Message

logger = logging.getLogger(__name__)

SERVICE_RESTARTS = 5
READY_TIMEOUT_S = 600.0
"""An engine takes half a minute on two free cores, and many times that on busy ones."""
STILL_STARTING_S = 30.0
"""How often a person is told that nothing hangs."""
REQUEST_TIMEOUT_S = 5.0
KNOWN_ERROR = 2
"""The service's status for an error that it has words for; before it serves, it would have the same again."""
POLL_S = 0.3


class DemoFailed(LiveEvalError):
    """A process of the demo ended with an error; the message names its log."""

    code = "demo_failed"


class DemoDriver:
    """One demo run; call `run` once."""

    def __init__(self, options: DemoOptions, run_dir: RunDir, view: DemoView, *, run_id: str) -> None:
        self._options = options
        self._run_dir = run_dir
        self._view = view
        self._run_id = run_id
        self._socket = socket_path(run_dir.root, SERVICE_SOCKET)
        self._served = False
        self._service = Child(
            "service",
            "live_eval.service",
            [str(run_dir.config)],
            log_path=run_dir.logs / "service.log",
            max_restarts=SERVICE_RESTARTS,
            on_restart=lambda name, status: view.say(
                f"{name} ended with status {status}: started again; see {run_dir.logs / 'service.log'}",
                style="yellow",
            ),
            is_final=lambda status: status == KNOWN_ERROR and not self._served,
        )

    async def run(self) -> None:
        """Train, evaluate, drain. DemoFailed if a process that matters ended with an error."""
        end_on_sigterm()
        service_config(self._options, self._run_dir, self._run_id).save(self._run_dir.config)
        async with AsyncExitStack() as stack:
            stack.callback(remove_socket_place, self._socket, self._run_dir)
            try:
                await self._run(stack)
            except asyncio.CancelledError:
                self._view.say("stopping: ending every process of the demo")
                raise

    async def _run(self, stack: AsyncExitStack) -> None:
        await self._start_service(stack)
        page = asyncio.create_task(self._tell_page(), name="tell-page")
        stack.push_async_callback(_cancelled, page)
        transport = await self._open_transport(stack)
        follow = asyncio.create_task(self._follow_events(), name="follow-events")
        stack.push_async_callback(_cancelled, follow)
        for path in self._options.checkpoints:
            await self._request(SubmitCheckpoint(path=str(path)))
        trainer_status = await self._train(stack, transport.trainer_config(self._trainer_base()))
        log = self._run_dir.logs / "trainer.log"
        trouble = f"the trainer ended with status {trainer_status}; see {log}"
        self._view.say(
            f"{'training has ended' if trainer_status == 0 else trouble}; evaluating what is left",
            style="red" if trainer_status else "",
        )
        await self._drain()
        if trainer_status != 0:
            raise DemoFailed(trouble)

    async def _open_transport(self, stack: AsyncExitStack) -> Transport:
        """Open it while the service starts, and give it up at once if the service does not."""
        try:
            async with asyncio.TaskGroup() as starting:
                starting.create_task(self._until_serving(), name="until-serving")
                return await stack.enter_async_context(
                    open_transport(self._options, self._run_dir, self._view, run_id=self._run_id)
                )
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    # --- service --------------------------------------------------------------------------

    async def _start_service(self, stack: AsyncExitStack) -> None:
        self._view.say(f"starting the service and {self._options.num_engines} SGLang eval engine(s)")
        await self._service.start()
        stack.push_async_callback(self._service.stop)

    async def _until_serving(self) -> None:
        log = self._run_dir.logs / "service.log"
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                told = time.monotonic()
                while (await self._status()) != "serving":
                    if self._service.ended:
                        words = last_words(log)
                        raise DemoFailed(f"the service did not start{words and f': {words}'}; see {log}")
                    if time.monotonic() - told > STILL_STARTING_S:
                        told = time.monotonic()
                        self._view.say("the eval engine is still starting")
                    await asyncio.sleep(POLL_S)
        except TimeoutError as error:
            raise DemoFailed(f"the service was not ready in {READY_TIMEOUT_S:.0f} s; see {log}") from error
        self._served = True
        self._view.say("the eval engine is ready")

    async def _tell_page(self) -> None:
        """Say where the page is when it is there, long before the engines are, and again where it moves."""
        told = ""
        while self._options.http_port is not None:
            with contextlib.suppress(FileNotFoundError):
                url = self._run_dir.http_url.read_text(encoding="utf-8")
                if url.endswith("\n") and url != told:
                    told = url
                    self._view.say(f"the page: {url.strip()}/")
            await asyncio.sleep(POLL_S)

    async def _status(self) -> str:
        with contextlib.suppress(TransportError):
            answer = await self._request(StatusRequest())
            if isinstance(answer, ServiceStatus):
                return answer.state
        return "unreachable"

    async def _request(self, message: Message) -> Message:
        async with ChannelClient(self._socket) as client:
            return await client.request(message, timeout_s=REQUEST_TIMEOUT_S)

    async def _follow_events(self) -> None:
        """Show what the service tells; a service that was started again is followed again."""
        client = ChannelClient(self._socket)
        while True:
            with contextlib.suppress(TransportError):
                async with client.subscribe(Subscribe(), timeout_s=REQUEST_TIMEOUT_S) as events:
                    async for event in events:
                        self._show(event)
            await asyncio.sleep(POLL_S)

    def _show(self, event: Message) -> None:
        if isinstance(event, JobEvent):
            self._view.job(event)
        elif isinstance(event, EngineEvent) and event.state in ("quarantined", "dead"):
            self._view.say(f"engine {event.engine} is {event.state}: {event.detail}", style="yellow")

    async def _drain(self) -> None:
        """Tell the service that training has ended, each life of it, until it has ended too."""
        while not self._service.ended:
            if await self._status() == "serving":
                with contextlib.suppress(TransportError):
                    await self._request(TrainingEnded())
            await self._service.wait(POLL_S)
        if (status := self._service.status) != 0:
            raise DemoFailed(
                f"the service ended with status {status}; see {self._run_dir.logs / 'service.log'}"
            )

    # --- trainer --------------------------------------------------------------------------

    def _trainer_base(self) -> TrainerConfig:
        return TrainerConfig(
            run_id=self._run_id,
            run_dir=str(self._run_dir.root),
            base=str(self._run_dir.base),
            num_versions=self._options.num_versions,
            steps_per_round=STEPS_PER_ROUND,
            seed=self._options.seed,
            transport=self._options.transport,
            receiver="",
        )

    async def _train(self, stack: AsyncExitStack, config: TrainerConfig) -> int:
        """Run the trainer to its end; its exit status."""
        path = self._run_dir.root / "trainer.json"
        path.write_bytes(msgspec.json.encode(config))
        trainer = Child(
            "trainer", "live_eval.demo.trainer", [str(path)], log_path=self._run_dir.logs / "trainer.log"
        )
        self._view.say(f"training: {self._options.num_versions} syncs over {self._options.transport}")
        await trainer.start()
        stack.push_async_callback(trainer.stop)
        while not trainer.ended:
            await trainer.wait(POLL_S)
            self._show_training()
        return trainer.status or 0

    def _show_training(self) -> None:
        records = trainer_records(self._run_dir)
        self._view.training(
            num_syncs=len(records),
            num_versions=self._options.num_versions,
            loss=records[-1]["loss"] if records else None,
        )


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
