"""A safetensors file that is written piece by piece, for transports whose bytes are in memory already.

Knows one file. Beside `Shard`, which is mapped so that a collective can receive into it, this one
costs no page faults, and what has been written goes to disk while the rest arrives. Invariant: the
descriptor lives as long as any range of the file does, so that a writer who is late, after the
version was discarded, writes into a file without a name and never into another one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.errors import StoreError, StoreFull
from live_eval.store.directories import is_full
from live_eval.store.spares import MakeFile, create
from live_eval.tensor_files import build_header, layout

if TYPE_CHECKING:
    import numpy as np

    from protocol.messages import TensorMeta

FLUSH_BYTES = 8 << 20
"""Written between two calls of `on_progress`."""


class FileRange:
    """Where one tensor's bytes go; `len()` is their number."""

    def __init__(self, file: _File, begin: int, num_bytes: int) -> None:
        self._file = file
        self._begin = begin
        self._num_bytes = num_bytes

    def __len__(self) -> int:
        return self._num_bytes

    def write(self, data: np.ndarray, at: int) -> None:
        """Put uint8 `data` at `at` bytes from the start; StoreFull if the disk cannot take them."""
        if at < 0 or at + data.nbytes > self._num_bytes:
            raise StoreError(f"{data.nbytes} bytes at {at} do not fit into a tensor of {self._num_bytes}")
        self._file.write(data.data, self._begin + at)


class WrittenShard:
    """One file of a version while it is being received.

    `places` maps each tensor's name to its range of the file. `on_progress` is called with the shard, in
    the thread that writes, whenever so much has been written that a `flush` beside the rest is worth it.
    """

    def __init__(
        self,
        path: Path,
        metas: Sequence[TensorMeta],
        *,
        make: MakeFile = create,
        on_progress: Callable[[WrittenShard], object] = lambda shard: None,
    ) -> None:
        """Make the file for these tensors, names unique; StoreFull if the disk cannot hold its header."""
        prefix, header = build_header(layout(metas))
        self.path = path
        self.metas = tuple(metas)
        self.num_bytes = header.num_bytes
        self._file: _File | None = _File(make(path, header.num_bytes), path, lambda: on_progress(self))
        self._file.write(memoryview(prefix), 0)
        # Its full length from the start: a tensor without bytes may be the last one.
        os.ftruncate(self._file.descriptor, header.num_bytes)
        self.places = {
            name: FileRange(self._file, slot.begin, slot.end - slot.begin)
            for name, slot in header.slots.items()
        }

    def flush(self) -> None:
        """Wait until what has been written is on disk; takes nothing on a tmpfs."""
        if self._file is not None:
            os.fdatasync(self._file.descriptor)

    def finish(self) -> None:
        """All bytes are there: `flush`, make the file read-only, `close`."""
        if self._file is not None:
            os.fdatasync(self._file.descriptor)
            os.fchmod(self._file.descriptor, 0o444)
        self.close()

    def close(self) -> None:
        """Give the file up; ranges that were handed out keep it open."""
        self.places = {}
        self._file = None


class _File:
    """A descriptor that is closed when nobody holds it any more."""

    def __init__(self, descriptor: int, path: Path, on_progress: Callable[[], object]) -> None:
        self.descriptor = descriptor
        self._path = path
        self._on_progress = on_progress
        self._unflushed = 0

    def __del__(self) -> None:
        os.close(self.descriptor)

    def write(self, data: memoryview, at: int) -> None:
        try:
            while data:
                count = os.pwrite(self.descriptor, data, at)
                data, at = data[count:], at + count
                self._unflushed += count
        except OSError as error:
            if is_full(error):
                raise StoreFull(f"{self._path}: no room for {len(data)} bytes ({error.strerror})") from error
            raise StoreError(f"{self._path}: cannot be written ({error.strerror})") from error
        if self._unflushed >= FLUSH_BYTES:
            self._unflushed = 0
            self._on_progress()
