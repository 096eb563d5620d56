"""What the figures of live-eval are held against: a copy, the digests, and other ways to keep weights.

Every peer works on memory that was touched before and, where it has memory of its own, keeps it
between calls, as live-eval does.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.update import Update
from live_eval.digests import tensor_digest

if TYPE_CHECKING:
    from benchmarks.weights import Weights


class Memcpy:
    """The C library's memcpy of each tensor into one block of memory, by a number of threads."""

    def __init__(self, weights: Weights, num_threads: int) -> None:
        self._block = np.empty(weights.num_bytes, dtype=np.uint8)
        self._block.fill(1)
        parts: list[list[tuple[int, int, int]]] = [[] for _ in range(num_threads)]
        filled = [0] * num_threads
        place = self._block.ctypes.data
        for _, tensor in sorted(weights.tensors, key=lambda named: -named[1].nbytes):
            smallest = filled.index(min(filled))
            parts[smallest].append((place, tensor.data_ptr(), tensor.nbytes))
            filled[smallest] += tensor.nbytes
            place += tensor.nbytes
        self._parts = parts
        self._pool = ThreadPoolExecutor(num_threads) if num_threads > 1 else None

    def run(self) -> None:
        """Copy all."""
        if self._pool is None:
            _copy(self._parts[0])
        else:
            list(self._pool.map(_copy, self._parts))


def _copy(parts: list[tuple[int, int, int]]) -> None:
    for target, source, size in parts:
        ctypes.memmove(target, source, size)


def digest_all(arrays: list[np.ndarray]) -> None:
    """The digest of each tensor, by one thread: the receiver has one for a source."""
    for array in arrays:
        tensor_digest(array)


def export(weights: Weights, directory: Path) -> Update:
    """`safetensors.torch.save_file`, which returns when the file is in the page cache."""
    from safetensors.torch import save_file

    path = directory / "export.safetensors"

    def run() -> None:
        save_file(dict(weights.tensors), path)

    def finish() -> None:
        # What is still on its way to the disk must not slow the next step down.
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.unlink()

    return Update(run=run, finish=finish)


def async_save(weights: Weights, directory: Path) -> Update:
    """`torch.distributed.checkpoint.async_save` with a stager that keeps its memory."""
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    from torch.distributed.checkpoint.state_dict_saver import async_save as save

    logging.getLogger("torch.distributed.checkpoint").setLevel(logging.ERROR)
    stager = DefaultStager(
        StagingOptions(
            use_pinned_memory=False,
            use_shared_memory=False,
            use_async_staging=False,
            use_non_blocking_copy=False,
        )
    )
    path = directory / "async-save"
    saving: list[Future[Any]] = []

    def run() -> None:
        future = save(dict(weights.tensors), checkpoint_id=path, async_stager=stager, no_dist=True)
        assert isinstance(future, Future)
        saving.append(future)

    def finish() -> None:
        saving.pop().result()
        os.sync()
        shutil.rmtree(path)

    return Update(run=run, finish=finish)


def ray_put(arrays: list[np.ndarray]) -> Update:
    """`ray.put` of the tensors' bytes, all in one object, without a copy on the way there."""
    import ray

    refs: list[Any] = []

    def run() -> None:
        refs.append(ray.put(arrays))

    return Update(run=run, finish=refs.clear)
