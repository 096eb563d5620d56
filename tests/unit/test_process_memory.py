"""Memory of another process is read whole, or not at all."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from live_eval import process_memory
from live_eval.process_memory import PR_SET_PTRACER, allow_reader, number_space, read_memory

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


class Kernel:
    """Takes permissions as Yama does."""

    def __init__(self, yama: Path) -> None:
        self.yama = yama
        self.readers: list[int] = []

    def prctl(self, option: int, reader: ctypes.c_ulong, *rest: int) -> int:
        assert (option, rest) == (PR_SET_PTRACER, (0, 0, 0))
        if not Path(f"/proc/{reader.value}").exists():
            return -1
        self.readers.append(reader.value)
        return 0


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    found = Kernel(tmp_path / "ptrace_scope")
    found.yama.write_text("1\n")
    monkeypatch.setattr(process_memory, "YAMA", found.yama)
    monkeypatch.setattr(process_memory, "_libc", lambda: found)
    monkeypatch.setattr(process_memory, "_allowed", [])
    return found


@pytest.fixture
def passer_by() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield child
        child.communicate(b"")


def test_a_reader_is_allowed_and_keeps_that_as_long_as_it_lives(
    kernel: Kernel, passer_by: subprocess.Popen[bytes]
) -> None:
    assert not allow_reader(2**22 + 1)  # nobody has that number
    assert allow_reader(passer_by.pid)
    assert not allow_reader(os.getpid())
    assert allow_reader(passer_by.pid)
    passer_by.communicate(b"")
    assert allow_reader(os.getpid())
    assert kernel.readers == [passer_by.pid, passer_by.pid, os.getpid()]


@pytest.mark.parametrize("setting", [None, "0", "2", "3"])
def test_nobody_is_allowed_where_that_changes_nothing(kernel: Kernel, setting: str | None) -> None:
    kernel.yama.unlink()
    if setting is not None:
        kernel.yama.write_text(setting)
    assert not allow_reader(os.getppid())
    assert kernel.readers == []


def test_a_number_counts_in_one_namespace_of_one_running_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = number_space()
    there = subprocess.run(
        [sys.executable, "-c", "from live_eval.process_memory import number_space as n; print(n())"],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    assert there.stdout.strip() == here
    monkeypatch.setattr(process_memory, "NAMESPACE", tmp_path)
    assert number_space() not in ("", here)
    monkeypatch.setattr(process_memory, "NAMESPACE", tmp_path / "none")
    assert number_space() == ""
