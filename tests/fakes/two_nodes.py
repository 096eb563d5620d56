"""A Ray cluster of several nodes on this host, each with an object store of its own; nodes come and go."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fakes.local_ray import ENV

TESTS = Path(__file__).parents[1]
IMPORTED = (TESTS / "fakes" / "engine_process", TESTS, TESTS.parent)
"""For Ray's workers; an engine that they launch is that of `engine_process`."""
OBJECT_STORE_BYTES = 80 << 20
ADDRESS = "127.0.0.2"
"""Loopback; Ray takes 127.0.0.1 for another word for the host's own address."""
SOON = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 2,
}
"""Ray notices within seconds that a node has gone; by itself it takes about 15."""


class TwoNodes:
    """This process is on the first node, where trainers are; others are added."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def add(self, *, num_gpus: int = 0) -> Any:
        """A node that is there; `node_id` is its id. It only says that it has GPUs."""
        return self._cluster.add_node(
            num_cpus=2,
            num_gpus=num_gpus,
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            node_ip_address=ADDRESS,
        )

    def take_away(self, node: Any) -> None:
        """As when its power fails: nothing on it hears of it."""
        self._cluster.remove_node(node, allow_graceful=False)


@contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    """The cluster, with one node and this process connected to it; gone afterwards."""
    before = os.environ.get("PYTHONPATH")
    os.environ.update(ENV | {"PYTHONPATH": os.pathsep.join(map(str, IMPORTED))})
    import ray
    import ray._private.utils
    from ray.cluster_utils import Cluster

    temp_dir = tempfile.mkdtemp(prefix="r", dir="/tmp")  # its sockets need a short path
    announce: Any = ray._private.utils.write_ray_address
    ray._private.utils.write_ray_address = lambda *_: None  # no other Ray of this host shall find it
    cluster: Any = None
    try:
        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 4,
                "object_store_memory": OBJECT_STORE_BYTES,
                "include_dashboard": False,
                "node_ip_address": ADDRESS,
                "temp_dir": temp_dir,
                "_system_config": SOON,
            },
        )
        ray.init(
            address=cluster.address, configure_logging=False, log_to_driver=False, _node_ip_address=ADDRESS
        )
        yield TwoNodes(cluster)
    finally:
        ray._private.utils.write_ray_address = announce
        ray.shutdown()
        if cluster is not None:
            cluster.shutdown()
        shutil.rmtree(temp_dir, ignore_errors=True)
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
