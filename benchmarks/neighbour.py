"""A process beside the training thread, as low in priority as the sender, that does one known thing.

It shows what a machine takes from a training step for having a neighbour at all, for the memory traffic
that no hand-over to another process can do without, and for keeping what was handed over in a new file.
Knows nothing of live-eval's own parts but the digest and the step back. Ends with the process that
started it.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.update import Update
from live_eval.digests import tensor_digest
from live_eval.processes import stand_back

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

BLOCK_BYTES = 128 << 20
"""Far more than the caches hold, so that going over it again and again is traffic."""
NUM_COPIES = 2
"""Into what both processes see, and from there to where it stays; each is hashed."""
END_S = 10.0


class Neighbour:
    """One such process; what it does follows a copy that `copy` makes in the calling thread."""

    def __init__(self, copy: Callable[[], object], num_bytes: int) -> None:
        """Start it; its memory is touched and its code is warm when this returns."""
        self._copy = copy
        self._num_bytes = num_bytes
        context = multiprocessing.get_context("spawn")
        self._link, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, min(num_bytes, BLOCK_BYTES)), name="neighbour", daemon=True
        )
        self._process.start()
        theirs.close()
        self._link.recv()

    @property
    def pid(self) -> int:
        """Of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def computing(self, seconds: float) -> Update:
        """A copy, then a neighbour that computes for so long without touching memory."""
        return self._update(_compute, seconds)

    def moving(self) -> Update:
        """A copy, then a neighbour that copies the bytes twice and hashes them twice."""
        return self._update(_move, self._num_bytes)

    def keeping(self, directory: Path) -> Update:
        """As `moving`, but the second copy goes into a new file in place of the one before."""
        directory.mkdir()
        return self._update(_keep, self._num_bytes, directory)

    def close(self) -> None:
        """End it."""
        self._link.close()
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()

    def _update(self, work: Callable[..., None], *arguments: object) -> Update:
        def run() -> None:
            self._copy()
            self._link.send((work, arguments))

        return Update(run=run, finish=self._link.recv)


def _serve(link: Connection, num_bytes: int) -> None:
    stand_back(whole_process=True)
    blocks = [np.empty(num_bytes, dtype=np.uint8) for _ in range(2)]
    for block in blocks:
        block.fill(1)
    try:
        while True:
            link.send(None)
            work, arguments = link.recv()
            work(blocks, *arguments)
    except (EOFError, OSError):
        return  # the one that started it has ended, or wants it no more


def _compute(blocks: list[np.ndarray], seconds: float) -> None:
    numbers = np.ones(512)  # half of the smallest cache
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(100):
            np.sin(numbers, out=numbers)


def _move(blocks: list[np.ndarray], num_bytes: int) -> None:
    source, target = blocks
    for size in _sizes(NUM_COPIES * num_bytes, source.nbytes):
        ctypes.memmove(target.ctypes.data, source.ctypes.data, size)
        tensor_digest(target[:size])
        source, target = target, source


def _keep(blocks: list[np.ndarray], num_bytes: int, directory: Path) -> None:
    source, target = blocks
    new = directory / "new"
    with new.open("wb", buffering=0) as file:
        for size in _sizes(num_bytes, source.nbytes):
            tensor_digest(source[:size])
            ctypes.memmove(target.ctypes.data, source.ctypes.data, size)
            file.write(target[:size].data)
            tensor_digest(target[:size])
        os.fdatasync(file.fileno())
    new.replace(directory / "kept")


def _sizes(num_bytes: int, most: int) -> Iterator[int]:
    while num_bytes > 0:
        yield min(num_bytes, most)
        num_bytes -= most
