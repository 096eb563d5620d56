"""slime's distributed updater with its real group: what it connects, announces and broadcasts.

The order of calls and their arguments are those of update_weight_from_distributed.py; tests/slime proves it.
"""

from __future__ import annotations

import socket
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from fakes.slime_standins import NamedTensors, UpdateWeightFromDistributed

TIMEOUT = timedelta(seconds=60)


def init_process_group(*, listener: socket.socket, world_size: int, group_name: str) -> Any:
    """slime.utils.distributed_utils.init_process_group for rank 0 on a CPU, its port bound already."""
    from torch.distributed.distributed_c10d import (
        Backend,
        PrefixStore,  # pyright: ignore[reportPrivateImportUsage]
        _new_process_group_helper,
        _world,
    )

    port = listener.getsockname()[1]
    store = dist.TCPStore(
        "127.0.0.1", port, world_size, is_master=True, timeout=TIMEOUT, master_listen_fd=listener.detach()
    )
    group, _ = _new_process_group_helper(
        world_size,
        0,
        [],
        Backend("gloo"),
        PrefixStore(group_name, store),
        group_name=group_name,
        backend_options=None,
        timeout=TIMEOUT,
    )
    _world.pg_group_ranks[group] = {rank: rank for rank in range(world_size)}
    return group


class Lock:
    """slime.ray.utils.Lock behind a Ray handle; `ready` makes a reference."""

    def __init__(self, ready: Callable[[Any], Any]) -> None:
        self.log: list[str] = []
        self.acquire = _Method(lambda: self._say("acquire"), ready)
        self.release = _Method(lambda: self._say("release"), ready)

    def _say(self, what: str) -> bool:
        self.log.append(what)
        return True


class _Method:
    def __init__(self, act: Callable[[], Any], ready: Callable[[Any], Any]) -> None:
        self._act, self._ready = act, ready

    def remote(self) -> Any:
        return self._ready(self._act())


class BroadcastingUpdater(UpdateWeightFromDistributed):
    """One pipeline source; `get` waits for references, as ray.get."""

    def __init__(
        self, chunks: Callable[[], list[NamedTensors]], *, get: Callable[[Any], Any], pp_rank: int = 0
    ) -> None:
        super().__init__(chunks)
        self.args = Namespace(rollout_num_gpus_per_engine=1)
        self._get = get
        self._group_name = f"slime-pp_{pp_rank}"
        self._model_update_groups: Any = None
        self.rollout_engines: Sequence[Any] = []
        self.num_groups = 0

    def connect_rollout_engines(
        self,
        rollout_engines: Sequence[Any],
        rollout_engine_lock: Any,
        engine_gpu_counts: Sequence[int] | None = None,
        engine_gpu_offsets: Sequence[int] | None = None,
        engine_parallel_configs: Sequence[Mapping[str, object]] | None = None,
    ) -> None:
        self.rollout_engines, self.rollout_engine_lock = rollout_engines, rollout_engine_lock
        if self._model_update_groups is not None:
            refs = [each.destroy_weights_update_group.remote(self._group_name) for each in rollout_engines]
            dist.destroy_process_group(self._model_update_groups)
            self._get(refs)
        self._model_update_groups = self._new_group(list(engine_gpu_counts or []))

    def destroy_group(self) -> None:
        """As a trainer process that ends."""
        if self._model_update_groups is not None:
            dist.destroy_process_group(self._model_update_groups)

    def _new_group(self, counts: list[int]) -> Any:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        self.num_groups += 1
        world_size = sum(counts) + 1
        refs = [
            engine.init_weights_update_group.remote(
                master_address="127.0.0.1",
                master_port=port,
                rank_offset=sum(counts[:number]) + 1,
                world_size=world_size,
                group_name=self._group_name,
                backend="gloo",
            )
            for number, engine in enumerate(self.rollout_engines)
        ]
        group = init_process_group(listener=listener, world_size=world_size, group_name=self._group_name)
        self._get(refs)
        return group

    def update_weights(self) -> None:
        self.weight_version += 1
        self._get([engine.pause_generation.remote() for engine in self.rollout_engines])
        self._get([engine.flush_cache.remote() for engine in self.rollout_engines])
        self._send_weights(None)
        self._get([engine.continue_generation.remote() for engine in self.rollout_engines])

    def _update_bucket_weights_from_distributed(self, converted_named_tensors: NamedTensors) -> None:
        refs = [
            engine.update_weights_from_distributed.remote(
                names=[name for name, _ in converted_named_tensors],
                dtypes=[param.dtype for _, param in converted_named_tensors],
                shapes=[param.shape for _, param in converted_named_tensors],
                group_name=self._group_name,
                weight_version=str(self.weight_version),
                load_format=None,
            )
            for engine in self.rollout_engines
        ]
        works = [
            dist.broadcast(param.data, 0, group=self._model_update_groups, async_op=True)
            for _, param in converted_named_tensors
        ]
        for work in works:
            assert work is not None
            work.wait()
        self._get(refs)
        converted_named_tensors.clear()
