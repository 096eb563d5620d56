"""Where in the Ray cluster live eval runs: GPUs and a node of its own.

GPUs come from a placement group made after slime's, so slime's layout is what it would be without.
Invariant: no wait here is without a bound, and what was reserved is given back by `release`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from live_eval.errors import ConfigError

if TYPE_CHECKING:
    from slime_patch.settings import EngineChoice

logger = logging.getLogger(__name__)

GPU_WAIT_S = 300.0
POLL_S = 0.1
PROBE_TIMEOUT_S = 120.0
HERE = {"127.0.0.1", "localhost", "::1", "0.0.0.0"}


@dataclass(frozen=True, slots=True)
class EvalPlace:
    """The node of engines, store and service, and the GPUs there."""

    node_id: str
    group: Any = None
    """Ray placement group with one bundle; None where running engines are used."""

    def actor_options(self, num_gpus: int) -> dict[str, Any]:
        """Ray options of an actor that uses the GPUs."""
        from ray.util.scheduling_strategies import (
            NodeAffinitySchedulingStrategy,
            PlacementGroupSchedulingStrategy,
        )

        if self.group is None:
            return {
                "num_cpus": 0,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(self.node_id, soft=False),
            }
        strategy = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=0)
        return {"num_cpus": 0, "num_gpus": num_gpus, "scheduling_strategy": strategy}

    def release(self) -> None:
        """Give the GPUs back."""
        if self.group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self.group)


def find_place(engines: EngineChoice) -> EvalPlace:
    """Reserve GPUs on one node, or find the node of running engines; ConfigError with figures if there "
    "is none."""
    if engines.addresses:
        return EvalPlace(_node_of(engines.addresses))
    import ray
    from ray.util.placement_group import placement_group_table

    group = _group_of(engines)
    logger.info("waiting for %d GPUs on one node for the eval engines", engines.num_gpus)
    if not group.wait(GPU_WAIT_S):
        total = ray.cluster_resources().get("GPU", 0)
        free = ray.available_resources().get("GPU", 0)
        EvalPlace("", group).release()
        raise ConfigError(
            f"no node has {engines.num_gpus} free GPUs for the eval engines ({GPU_WAIT_S:.0f} s waited; "
            "the cluster "
            f"has {total:g} GPUs, {free:g} are free): leave GPUs out of --rollout-num-gpus or "
            "--actor-num-gpus-per-node, or give a smaller --eval-num-gpus"
        )
    nodes = placement_group_table(group)["bundles_to_node_id"]
    return EvalPlace(nodes[0], group)


class Claim:
    """A place that may come yet; asked again and again, without waiting."""

    def __init__(self, engines: EngineChoice) -> None:
        self._engines = engines
        self._group: Any = None

    def poll(self) -> EvalPlace | None:
        """The place, once; None while no node has room."""
        if self._engines.addresses:
            try:
                return EvalPlace(_node_of(self._engines.addresses))
            except ConfigError:
                return None
        from ray.util.placement_group import placement_group_table

        self._group = self._group or _group_of(self._engines)
        if not self._group.wait(POLL_S):
            return None
        group, self._group = self._group, None
        return EvalPlace(placement_group_table(group)["bundles_to_node_id"][0], group)

    def release(self) -> None:
        """Wait no longer."""
        group, self._group = self._group, None
        EvalPlace("", group).release()


def _group_of(engines: EngineChoice) -> Any:
    from ray.util.placement_group import placement_group

    return placement_group([{"GPU": engines.num_gpus, "CPU": 1}], strategy="STRICT_PACK")


def _node_of(addresses: tuple[str, ...]) -> str:
    import ray

    hosts = {urlsplit(address).hostname or "" for address in addresses}
    nodes = {
        node[key]: node["NodeID"]
        for node in ray.nodes()
        if node["Alive"]
        for key in ("NodeManagerAddress", "NodeManagerHostname")
    }
    here = ray.get_runtime_context().get_node_id()
    found = {here if host in HERE else nodes.get(host, "") for host in hosts}
    if len(found) != 1 or "" in found:
        raise ConfigError(
            f"--eval-engine-addrs {', '.join(sorted(hosts))}: all engines must run on one node of this "
            "Ray cluster, "
            f"because they load versions from its disk; its nodes are {', '.join(sorted(nodes))}"
        )
    return found.pop()


def probe(modules: tuple[str, ...]) -> str:
    """Runs on a node: import what runs there; the reason if it cannot be, else empty."""
    import importlib

    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return ""


def check_importable(node_ids: list[str], modules: tuple[str, ...]) -> None:
    """ConfigError if live-eval's code is not on one of the nodes."""
    for node_id, problem in _problems(probe, node_ids, modules):
        raise ConfigError(
            f"live-eval cannot be imported on node {node_id} ({problem}): install it there, or put it on "
            "PYTHONPATH in the job's runtime_env"
        )


def _problems(
    check: Callable[..., str], node_ids: list[str], *arguments: object
) -> Iterator[tuple[str, str]]:
    """Run the check on all of these nodes at once; each node with what is wrong there, where something is."""
    import ray
    import ray.exceptions
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def start(node_id: str) -> Any:
        place = NodeAffinitySchedulingStrategy(node_id, soft=False)
        task: Any = ray.remote(check).options(num_cpus=0, scheduling_strategy=place)
        return task.remote(*arguments)

    for node_id, ref in [(node_id, start(node_id)) for node_id in node_ids]:
        try:
            problem = str(ray.get(ref, timeout=PROBE_TIMEOUT_S))
        except ray.exceptions.RayError as error:
            problem = str(error).strip().splitlines()[-1]
        if problem:
            yield node_id, problem


def live_nodes() -> list[str]:
    """Ids of the cluster's nodes."""
    import ray

    return [node["NodeID"] for node in ray.nodes() if node["Alive"]]


def nodes_if_connected() -> list[str] | None:
    """The same; None if this process is connected to no cluster (any more)."""
    import ray

    return live_nodes() if ray.is_initialized() else None


def _training_nodes() -> list[str]:
    """Ids of the nodes on which trainers may run: those with GPUs."""
    import ray

    return [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]


def _make_mailbox(directory: str, token: str) -> str:
    """Runs on the eval engines' node; why it cannot be made, else empty."""
    from live_eval.mailbox import Mailbox

    mailbox = Mailbox(Path(directory))
    try:
        if not mailbox.holds(token):  # a receiver on another node goes on with what lies there
            mailbox.make(token)
    except OSError as error:
        return f"it cannot be made: {error.strerror}"
    return ""


def _sees_mailbox(directory: str, token: str) -> str:
    """Runs on each node; why it is not the same directory, else empty."""
    from live_eval.mailbox import Mailbox

    return "" if Mailbox(Path(directory)).holds(token) else "it is not the same directory there"


def share_directory(directory: Path, *, reader: str, token: str) -> None:
    """Make a mailbox on node `reader`; ConfigError if a node with GPUs does not see it."""
    for check, nodes in ((_make_mailbox, [reader]), (_sees_mailbox, _training_nodes())):
        for node_id, problem in _problems(check, nodes, str(directory), token):
            raise ConfigError(
                f"{directory} on node {node_id}: {problem}; versions travel through it, so it must be on "
                "a file system that trainers and eval engines share: see --eval-transport-dir, or "
                "--update-weight-disk-dir where slime's updates are files"
            )
