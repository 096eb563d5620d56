"""A Ray of one run alone, whose workers stand where the trainer stands.

Ray starts its workers at nice 15, and under slime the trainer is one of them. A bench's trainer is not: with
Ray's own setting it would pass every part of live-eval on its way to a core.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ENV = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_DEDUP_LOGS": "0",
    "PYTHONPATH": str(Path(__file__).parents[1]),  # for its workers
}


@dataclass(frozen=True, slots=True)
class LocalRay:
    """What another driver joins with."""

    address: str
    temp_dir: str


@contextmanager
def local_ray(
    object_store_bytes: int, *, num_cpus: int = 2, namespace: str | None = None
) -> Iterator[LocalRay]:
    """On loopback, without a dashboard; it ends and its files are removed at exit."""
    os.environ.update(_ENV)
    import ray

    temp_dir = tempfile.mkdtemp(prefix="le-ray-", dir="/tmp")  # its sockets need a short path
    try:
        context: Any = ray.init(
            address="local",
            namespace=namespace,
            num_cpus=num_cpus,
            num_gpus=0,
            object_store_memory=object_store_bytes,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=temp_dir,
            _system_config={"worker_niceness": 0},
        )
        yield LocalRay(context.address_info["address"], temp_dir)
    finally:
        ray.shutdown()
        shutil.rmtree(temp_dir, ignore_errors=True)
