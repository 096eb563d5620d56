"""A safetensors file that is mapped and filled in place.

Knows one file: it is laid out, allocated and mapped before the first byte arrives, so that
receiving is plain memory writes. Invariant: the whole file has blocks before it is mapped, since a
full disk under a mapping is a signal that kills the process, not an error.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from live_eval.errors import StoreFull
from live_eval.store.directories import is_full
from live_eval.store.spares import MakeFile, create
from live_eval.tensor_files import build_header, layout

if TYPE_CHECKING:
    from protocol.messages import TensorMeta

_MADV_POPULATE_WRITE = 23
"""Linux 5.14: fault all pages in at once, several times cheaper than one by one as bytes arrive."""


class Shard:
    """One file of a version while it is being received.

    `places` maps each tensor's name to its bytes in the file, a writable uint8 array of one
    dimension. The mapping lives as long as any view does; nobody may write after `close`.
    """

    def __init__(self, path: Path, metas: Sequence[TensorMeta], *, make: MakeFile = create) -> None:
        """Make the file for these tensors, names unique; StoreFull if the disk cannot hold it."""
        prefix, header = build_header(layout(metas))
        self.path = path
        self.metas = tuple(metas)
        self.num_bytes = header.num_bytes
        self._descriptor = make(path, header.num_bytes)
        try:
            memory = _map(self._descriptor, header.num_bytes)
        except OSError as error:
            self.close()
            if is_full(error) or error.errno in (errno.ENOMEM, errno.EFAULT):
                raise StoreFull(f"{path}: no room for {header.num_bytes} bytes ({error.strerror})") from error
            raise
        data = np.frombuffer(memory, dtype=np.uint8)
        data[: len(prefix)] = np.frombuffer(prefix, dtype=np.uint8)
        self.places = {name: data[slot.begin : slot.end] for name, slot in header.slots.items()}

    def flush(self) -> None:
        """Wait until the bytes are on disk, and make the file read-only; takes nothing on a tmpfs."""
        os.fdatasync(self._descriptor)
        os.fchmod(self._descriptor, 0o444)

    def finish(self) -> None:
        """All bytes are there: `flush`, then `close`. Costs what unmapping the pages costs, too."""
        self.places = {}
        self.flush()
        self.close()

    def close(self) -> None:
        """Give file and views up; memory goes when the last view that was handed out goes."""
        self.places = {}
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _map(descriptor: int, num_bytes: int) -> mmap.mmap:
    os.posix_fallocate(descriptor, 0, num_bytes)
    memory = mmap.mmap(descriptor, num_bytes)
    try:
        memory.madvise(_MADV_POPULATE_WRITE)
    except OSError as error:
        if error.errno != errno.EINVAL:  # an older kernel: pages come one by one
            memory.close()
            raise
    return memory
