"""A file that is written piece by piece: whole, or an error that says why."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from live_eval.errors import StoreError, StoreFull
from live_eval.store.written_shard import WrittenShard
from live_eval.tensor_files import read_header
from protocol.messages import TensorMeta

WIDE = TensorMeta("wide", "float32", (8,))
NARROW = TensorMeta("narrow", "int8", (3,))
NONE = TensorMeta("none", "bfloat16", (0, 4))


def some(count: int, value: int) -> np.ndarray:
    return np.full(count, value, dtype=np.uint8)


def test_every_tensor_lies_where_the_header_says(tmp_path: Path) -> None:
    shard = WrittenShard(tmp_path / "shard", [NARROW, WIDE, NONE])
    shard.places["narrow"].write(some(3, 7), 0)
    shard.places["wide"].write(some(16, 2), 16)
    shard.places["wide"].write(some(16, 1), 0)
    shard.finish()
    slots, data = read_header(tmp_path / "shard").slots, (tmp_path / "shard").read_bytes()
    assert data[slots["wide"].begin : slots["wide"].end] == bytes([1] * 16 + [2] * 16)
    assert data[slots["narrow"].begin : slots["narrow"].end] == bytes([7] * 3)
    assert slots["none"].begin == slots["none"].end
    assert not (tmp_path / "shard").stat().st_mode & 0o222


@pytest.mark.parametrize(("at", "count"), [(0, 4), (2, 2), (-1, 1)])
def test_bytes_beyond_a_tensor_are_refused(tmp_path: Path, at: int, count: int) -> None:
    shard = WrittenShard(tmp_path / "shard", [NARROW, WIDE])
    with pytest.raises(StoreError, match="do not fit into a tensor of 3"):
        shard.places["narrow"].write(some(count, 1), at)
    shard.close()


def test_a_writer_that_is_late_writes_into_no_other_file(tmp_path: Path) -> None:
    shard = WrittenShard(tmp_path / "shard", [NARROW])
    late = shard.places["narrow"]
    shard.close()
    (tmp_path / "shard").unlink()
    with (tmp_path / "other").open("wb") as other:  # would get the number of a descriptor that was closed
        late.write(some(3, 9), 0)
        assert os.fstat(other.fileno()).st_size == 0


def test_descriptors_are_closed_with_the_last_range(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(5):
        shard = WrittenShard(tmp_path / f"shard{number}", [NARROW])
        shard.places["narrow"].write(some(3, 9), 0)
        shard.finish()
    del shard
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def pwrite(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int, memoryview, int], int]], None]:
    return lambda other: monkeypatch.setattr(os, "pwrite", other)


def test_a_disk_that_takes_a_part_at_a_time_gets_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: real(descriptor, data[:1], at))
    shard = WrittenShard(tmp_path / "shard", [NARROW])
    shard.places["narrow"].write(np.array([1, 2, 3], dtype=np.uint8), 0)
    shard.finish()
    assert (tmp_path / "shard").read_bytes().endswith(b"\x01\x02\x03")


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, StoreFull), (errno.EIO, StoreError)])
def test_a_disk_that_refuses_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError]
) -> None:
    shard = WrittenShard(tmp_path / "shard", [NARROW])

    def refuse(descriptor: int, data: memoryview, at: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(kind, match="shard"):
        shard.places["narrow"].write(some(3, 1), 0)
    shard.close()
