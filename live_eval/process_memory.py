"""One process reads another's memory on the same host, as MPI's cross memory attach does.

Knows Linux alone (process_vm_readv, and the list of readers of the Yama security module). Where a kernel,
a container or another system forbids it, that is a plain OSError, and there is another way to hand
bytes over. Invariant: what is read lands in the caller's memory whole, or an error says that it did not.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

PR_SET_PTRACER = 0x59616D61


class _Range(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("address", ctypes.c_void_p), ("num_bytes", ctypes.c_size_t))


def read_memory(pid: int, address: int, into: np.ndarray) -> None:
    """Fill the contiguous uint8 array `into` from `address` of process `pid`; lets other threads run.

    OSError if there is no such process or memory, or if reading it is not allowed.
    """
    call = _libc().process_vm_readv
    place, end = into.ctypes.data, into.ctypes.data + into.nbytes
    while place < end:
        here, there = _Range(place, end - place), _Range(address, end - place)
        count = call(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if count < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"memory of process {pid} cannot be read: {os.strerror(number)}")
        if count == 0:
            raise OSError(errno.EFAULT, f"memory of process {pid} ends before its time")
        place, address = place + count, address + count


def allow_reader(pid: int) -> None:
    """Let process `pid` of the same user read this process's memory where Yama would forbid it.

    One process at a time; changes nothing where Yama is not in force.
    """
    _libc().prctl(PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "process_vm_readv"):
        raise OSError(errno.ENOSYS, "this system has no process_vm_readv")
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    libc.process_vm_readv.argtypes = [
        ctypes.c_int,
        ctypes.POINTER(_Range),
        ctypes.c_ulong,
        ctypes.POINTER(_Range),
        ctypes.c_ulong,
        ctypes.c_ulong,
    ]
    return libc
