"""Memory of another process is read whole, or not at all."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import numpy as np
import pytest

from live_eval.process_memory import allow_reader, read_memory

CHILD = """
import ctypes, sys
held = ctypes.create_string_buffer(bytes(range(256)) * 4096)
print(ctypes.addressof(held), flush=True)
sys.stdin.read()
"""


def test_another_processes_memory_is_read() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        address = int(child.stdout.readline())
        found = np.zeros(256 * 4096 - 3, dtype=np.uint8)
        read_memory(child.pid, address + 3, found)
        assert found.tobytes() == (bytes(range(256)) * 4096)[3:]
        child.communicate("")
    with pytest.raises(OSError, match=f"process {child.pid} cannot be read"):
        read_memory(child.pid, address, found)


def test_memory_that_ends_early_is_an_error() -> None:
    page = mmap.PAGESIZE
    reserved = mmap.mmap(-1, 2 * page, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    start = np.frombuffer(reserved, dtype=np.uint8).ctypes.data
    into = np.zeros(2 * page, dtype=np.uint8)
    read_memory(os.getpid(), start, into)
    with pytest.raises(OSError, match="cannot be read"):
        read_memory(os.getpid(), 1, into)


def test_nothing_is_read_for_no_bytes() -> None:
    read_memory(os.getpid(), 1, np.zeros(0, dtype=np.uint8))


def test_a_reader_is_allowed_whatever_the_system_has() -> None:
    allow_reader(os.getppid())
