"""A place that cannot hold the store is refused at start, with figures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from live_eval.errors import ConfigError
from live_eval.store import check_place, place

GB = 1_000_000_000
TB = 1000 * GB


def test_a_place_that_is_large_enough_is_reported(tmp_path: Path) -> None:
    root = tmp_path / "not" / "there" / "yet"
    report = check_place(root, index_bytes=1000, kept=3, max_bytes=GB)
    assert report.need_bytes == 5000
    assert report.available_bytes > 5000
    assert report.root == root
    assert report.file_system != "unknown"
    assert not root.exists()


def test_a_budget_below_the_need_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"budget is 4\.00 GB.*\(3 kept \+ 2\) x 1\.00 GB = 5\.00 GB.*keep fewer"
    ):
        check_place(tmp_path, index_bytes=GB, kept=3, max_bytes=4 * GB)


def test_a_disk_below_the_need_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the store needs .* = 5000\.00 GB; choose a place"):
        check_place(tmp_path, index_bytes=TB, kept=3, max_bytes=10 * TB)


def test_what_others_take_there_counts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"after 1000000\.00 GB for others"):
        check_place(tmp_path, index_bytes=1, kept=1, max_bytes=GB, taken_bytes=1000 * TB)


def test_what_the_store_holds_already_is_room_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = os.statvfs(tmp_path)
    (tmp_path / "versions").mkdir()
    (tmp_path / "versions" / "x").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "versions" / "x", tmp_path / "versions" / "y")
    report = check_place(tmp_path, index_bytes=1, kept=1, max_bytes=GB)
    assert place._held_bytes(tmp_path) == 102_400  # one inode, in blocks
    assert report.available_bytes == pytest.approx(free.f_bavail * free.f_frsize, rel=0.1)


def test_memory_bounds_a_tmpfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_file_system", lambda path: "tmpfs")
    monkeypatch.setattr(place, "_memory_left", lambda: 4 * GB)
    with pytest.raises(ConfigError, match=r"is in memory, of which 4\.00 GB are left.*local disk"):
        check_place(tmp_path, index_bytes=GB, kept=3, max_bytes=10 * GB)
    report = check_place(tmp_path, index_bytes=GB, kept=1, max_bytes=10 * GB)
    assert report.in_memory
    assert report.memory_bytes == 4 * GB


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_cgroup_above_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    names = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes")
        if version == 1
        else ("memory.max", "memory.current")
    )
    outer, inner = tmp_path, tmp_path / "job"
    inner.mkdir()
    (outer / names[0]).write_text("9000\n")
    (outer / names[1]).write_text("2000\n")
    (inner / names[0]).write_text("max\n" if version == 2 else f"{2**63 - 4096}\n")
    (inner / names[1]).write_text("1000\n")
    monkeypatch.setattr(place, "_cgroups", lambda: [inner, outer])
    assert place._memory_left() == 7000


def test_the_cgroups_of_this_process_are_found() -> None:
    assert all(str(path).startswith("/sys/fs/cgroup") for path in place._cgroups())
    assert place._memory_left() > 0


def test_shared_memory_is_known_to_be_memory() -> None:
    assert place._file_system(Path("/dev/shm")) == "tmpfs"
    assert place._file_system(Path("/proc/self")) == "proc"
