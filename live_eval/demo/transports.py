"""The demo's receiver and what else the chosen transport needs, for the time of a run.

ray   a local Ray, and the receiver as an actor in it, which Ray restarts
nccl  the engine facade as a process that joins the trainer's group, and a second SGLang
      server, the rollout engine, as one more rank of it
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.channel import socket_path
from live_eval.demo.plan import MAX_STORE_BYTES
from live_eval.demo.supervise import Child, end_on_sigterm
from live_eval.engines.launch import EngineProcess, launch_settings
from live_eval.errors import ConfigError
from live_eval.rundir import RECEIVER_SOCKET, SERVICE_SOCKET
from live_eval.subscriber.facade_config import FacadeConfig

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from live_eval.demo.plan import DemoOptions
    from live_eval.demo.trainer_config import TrainerConfig
    from live_eval.demo.view import DemoView
    from live_eval.rundir import RunDir

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 200 << 20
RECEIVER_ACTOR = "live-eval-receiver"
RECEIVER_RESTARTS = 5


@dataclass(frozen=True, slots=True)
class Transport:
    """An open transport; `trainer_config` completes what the trainer is told."""

    trainer_config: Callable[[TrainerConfig], TrainerConfig]


def open_transport(
    options: DemoOptions, run_dir: RunDir, view: DemoView, *, run_id: str
) -> AbstractAsyncContextManager[Transport]:
    """The chosen transport, ready for a trainer."""
    if options.transport == "ray":
        return _ray(options, run_dir, view, run_id)
    return _nccl(options, run_dir, view)


@asynccontextmanager
async def _ray(
    options: DemoOptions, run_dir: RunDir, view: DemoView, run_id: str
) -> AsyncIterator[Transport]:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("transport ray needs Ray: pip install 'live-eval[ray]', or use nccl") from error

    from live_eval.subscriber.ray_receiver import RayReceiverConfig, start_ray_receiver

    view.say("starting Ray and the receiver as an actor in it")
    # Ray puts unix sockets there, whose paths have room for about 100 bytes.
    temp_dir = Path(tempfile.mkdtemp(prefix="le-ray-", dir="/tmp"))
    in_ray = functools.partial(asyncio.get_running_loop().run_in_executor, ThreadPoolExecutor(1))
    try:
        await in_ray(_start_ray, temp_dir, run_id)
        end_on_sigterm()  # Ray brings a handler of its own, which aborts this process
        config = RayReceiverConfig(
            store=run_dir.store,
            base=run_dir.base,
            max_bytes=MAX_STORE_BYTES,
            keep_newest=options.num_versions,
            service_socket=socket_path(run_dir.root, SERVICE_SOCKET),
        )
        await asyncio.to_thread(start_ray_receiver, config, name=RECEIVER_ACTOR, detached=True)
        address = ray.get_runtime_context().gcs_address
        yield Transport(
            lambda base: replace(base, receiver=RECEIVER_ACTOR, ray_address=address, ray_namespace=run_id)
        )
    finally:
        signal.alarm(0)  # a SIGTERM that met Ray's handler aborts this process after 3 s
        # One call in the thread of the start: it comes after a start that was cancelled, and runs to
        # its end if a second Ctrl-C ends the wait for it.
        await in_ray(stop_ray, temp_dir)


def _start_ray(temp_dir: Path, namespace: str) -> None:
    import ray

    ray.init(
        address="local",
        namespace=namespace,
        num_cpus=2,
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(temp_dir),
        # The trainer is no worker of Ray's here: at Ray's nice 15 the receiver would get no core beside it.
        _system_config={"worker_niceness": 0},
    )


def stop_ray(temp_dir: Path) -> None:
    """End the local Ray and remove its folder."""
    import ray

    try:
        ray.shutdown()
    finally:
        shutil.rmtree(temp_dir, ignore_errors=True)


@asynccontextmanager
async def _nccl(options: DemoOptions, run_dir: RunDir, view: DemoView) -> AsyncIterator[Transport]:
    view.say("starting the receiver, and a second SGLang server as the rollout engine")
    config = FacadeConfig(
        socket=socket_path(run_dir.root, RECEIVER_SOCKET),
        store=run_dir.store,
        base=run_dir.base,
        max_bytes=MAX_STORE_BYTES,
        keep_newest=options.num_versions,
        service_socket=socket_path(run_dir.root, SERVICE_SOCKET),
    )
    receiver = Child(
        "receiver",
        "live_eval.subscriber.facade",
        config.arguments(),
        log_path=run_dir.logs / "receiver.log",
        max_restarts=RECEIVER_RESTARTS,
        on_restart=lambda name, status: view.say(
            f"{name} ended with status {status}: started again; see {run_dir.logs / 'receiver.log'}",
            style="yellow",
        ),
    )
    settings = launch_settings(run_dir.base, device="cpu")
    rollout = EngineProcess.start(settings, log=run_dir.logs / "rollout.log", name="rollout")
    try:
        await receiver.start()
        await rollout.wait_ready()
        yield Transport(lambda base: replace(base, receiver=str(config.socket), rollout_engine=rollout.url))
    finally:
        await receiver.stop()
        await rollout.stop()
        remove_socket_place(config.socket, run_dir)


def remove_socket_place(socket: Path, run_dir: RunDir) -> None:
    """Remove the private folder in which `socket` lies if the run directory's path is too long for it."""
    if socket.parent.absolute() != Path(os.path.abspath(run_dir.root)):
        shutil.rmtree(socket.parent, ignore_errors=True)
