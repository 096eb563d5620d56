"""Whether the store fits where it is to be, asked once at start and answered with figures.

Knows file systems and memory limits, not versions. A tmpfs is memory: there the cgroup's limit
counts as well as the free space.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from live_eval.errors import ConfigError
from live_eval.store.directories import free_bytes

SPARE_VERSIONS = 2
"""Room beyond the versions that are kept: one that is being received, one that is being evaluated."""
_UNLIMITED = 1 << 60
"""cgroup v1 writes a number near 2**63 where there is no limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceReport:
    """A place that is large enough, with the figures (bytes)."""

    root: Path
    file_system: str
    """Type of the file system, for example `ext4` or `tmpfs`."""
    in_memory: bool
    need_bytes: int
    """(versions kept + 2) x size of one."""
    available_bytes: int
    """What can still be written there, and what the store has there already."""
    memory_bytes: int | None
    """What the cgroup or the machine still gives, if the place is in memory; else None."""
    max_bytes: int


def check_place(
    root: str | Path, *, index_bytes: int, kept: int, max_bytes: int, taken_bytes: int = 0
) -> PlaceReport:
    """Refuse a place that cannot hold the store: ConfigError with the figures and what to change.

    `index_bytes` is the size of one version (the base checkpoint's total size), `kept` how many are
    kept. `taken_bytes` is what others will still take there, such as Ray's object store on /dev/shm.
    """
    root = Path(root).absolute()
    need = index_bytes * (kept + SPARE_VERSIONS)
    ground = _existing(root)
    file_system = _file_system(ground)
    in_memory = file_system in ("tmpfs", "ramfs")
    held = _held_bytes(root)
    available = free_bytes(ground) - taken_bytes + held
    memory = _memory_left() if in_memory else None
    if memory is not None:
        memory += held - taken_bytes
    report = PlaceReport(
        root=root,
        file_system=file_system,
        in_memory=in_memory,
        need_bytes=need,
        available_bytes=available,
        memory_bytes=memory,
        max_bytes=max_bytes,
    )
    _refuse(report, index_bytes, kept, taken_bytes)
    return report


def _refuse(report: PlaceReport, index_bytes: int, kept: int, taken_bytes: int) -> None:
    sum_text = f"({kept} kept + {SPARE_VERSIONS}) x {_gb(index_bytes)} = {_gb(report.need_bytes)}"
    if report.max_bytes < report.need_bytes:
        raise ConfigError(
            f"the store's budget is {_gb(report.max_bytes)}, it needs {sum_text}; raise it or keep fewer"
        )
    taken = f" after {_gb(taken_bytes)} for others" if taken_bytes else ""
    if report.available_bytes < report.need_bytes:
        raise ConfigError(
            f"{report.root} ({report.file_system}) has {_gb(report.available_bytes)}{taken}, the store needs "
            f"{sum_text}; choose a place with more room, such as a local disk, or keep fewer versions"
        )
    if report.memory_bytes is not None and report.memory_bytes < report.need_bytes:
        raise ConfigError(
            f"{report.root} is in memory, of which {_gb(report.memory_bytes)} are left{taken}, the store "
            f"needs {sum_text}; choose a local disk, or keep fewer versions"
        )


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _file_system(path: Path) -> str:
    """Type of the file system that `path` is on, from the longest mount point above it."""
    path = path.resolve()
    best, kind = Path("/"), "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, file_system, *_ = line.split(" ")
        mount = Path(mount_point.replace("\\040", " "))
        if path.is_relative_to(mount) and len(mount.parts) >= len(best.parts):
            best, kind = mount, file_system
    return kind


def _held_bytes(root: Path) -> int:
    """Bytes that files under `root` take, each inode once."""
    inodes: dict[int, int] = {}
    for directory, _, names in os.walk(root):
        for name in names:
            stat = os.lstat(os.path.join(directory, name))
            inodes[stat.st_ino] = stat.st_blocks * 512
    return sum(inodes.values())


def _memory_left() -> int:
    """Bytes of memory that this process's cgroup, or else the machine, still gives."""
    left = [_mem_available()]
    for limit_name, used_name in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for directory in _cgroups():
            limit, used = _number(directory / limit_name), _number(directory / used_name)
            if limit is not None and used is not None and limit < _UNLIMITED:
                left.append(max(0, limit - used))
    return min(left)


def _cgroups() -> list[Path]:
    """This process's cgroup directories and all above them, version 1 and 2."""
    found: list[Path] = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = Path("/sys/fs/cgroup/memory" if controllers else "/sys/fs/cgroup")
        here = top / path.lstrip("/")
        found += [here, *(parent for parent in here.parents if parent.is_relative_to(top))]
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # no such cgroup file, or "max"


def _mem_available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return _UNLIMITED


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB"
