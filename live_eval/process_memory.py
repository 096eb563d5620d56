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
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

PR_SET_PTRACER = 0x59616D61
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
"""1 if a process is read by its ancestors and the one that it allows."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = Path("/proc/self/ns/pid")

_allowed: list[int] = []
"""The process that was allowed last."""


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


def number_space() -> str:
    """The running system and the namespace in which this process's number is its own; empty if not known."""
    try:
        return f"{BOOT.read_text().strip()}/{NAMESPACE.stat().st_ino}"
    except OSError:
        return ""


def allow_reader(pid: int) -> bool:
    """Let process `pid` of the same user read this process's memory, where Yama asks for that.

    Yama knows one such process. One that was allowed here before keeps its right as long as it lives.
    False if nothing was changed.
    """
    if not _yama_asks() or (_allowed and _allowed[-1] != pid and Path(f"/proc/{_allowed[-1]}").exists()):
        return False
    if _libc().prctl(PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0) != 0:
        return False
    _allowed[:] = [pid]
    return True


def _yama_asks() -> bool:
    try:
        return YAMA.read_text().strip() == "1"
    except OSError:
        return False


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
