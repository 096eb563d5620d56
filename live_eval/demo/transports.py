"""The demo's receiver and what else the chosen transport needs, for the time of a run.

ray   a local Ray, and the receiver as an actor in it, which Ray restarts
nccl  the engine facade as a process that joins the trainer's group, and a second SGLang
      server, the rollout engine, as one more rank of it
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.channel import socket_path
from live_eval.demo.plan import MAX_STORE_BYTES
from live_eval.errors import ConfigError
from live_eval.rundir import SERVICE_SOCKET

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from live_eval.demo.plan import DemoOptions
    from live_eval.demo.trainer_config import TrainerConfig
    from live_eval.demo.view import DemoView
    from live_eval.rundir import RunDir

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 200 << 20
RECEIVER_ACTOR = "live-eval-receiver"


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
    try:
        await asyncio.to_thread(_start_ray, temp_dir, run_id)
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
        await asyncio.to_thread(ray.shutdown)
        shutil.rmtree(temp_dir, ignore_errors=True)


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
    )
