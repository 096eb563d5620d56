"""A Ray of its own for one test module: small, without dashboard, gone afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

OBJECT_STORE_BYTES = 200 << 20

ENV = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_DEDUP_LOGS": "0",
}


@contextmanager
def local_ray(*, object_store_bytes: int = OBJECT_STORE_BYTES) -> Iterator[None]:
    """Start Ray on loopback, below a path short enough for its sockets; stop it and remove its files."""
    os.environ.update(ENV)
    import ray

    temp_dir = tempfile.mkdtemp(prefix="r", dir="/tmp")
    ray.init(
        num_cpus=4,
        num_gpus=0,
        object_store_memory=object_store_bytes,
        include_dashboard=False,
        configure_logging=False,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
        _temp_dir=temp_dir,
    )
    try:
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(temp_dir, ignore_errors=True)
