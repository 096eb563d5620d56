"""Where stores and exports are written: what kind of file system it is, and whether there is room."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

MODELS_ON_PLACE = 4
"""Two versions, the export or the asynchronous checkpoint, and one to spare."""
MODELS_IN_MEMORY = 5
"""The weights, the staging slot, the copy beside it, what the export makes on its way, and one to spare."""
MODELS_OF_PEERS = 3
"""What the asynchronous checkpoint keeps, and what Ray's object store may hold of a whole model."""
MEMORY_FOR_PROGRAMS = 2 << 30
SHARED_MEMORY = Path("/dev/shm")


class NoRoom(Exception):
    """A place cannot take what a run writes."""


def file_system(place: Path) -> str:
    """Type of the file system that holds `place`, for example `ext4`."""
    found, longest = "unknown", -1
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, mount, kind, *_ = line.split()
        if os.path.commonpath([mount, place.resolve()]) == mount and len(mount) >= longest:
            found, longest = kind, len(mount)
    return found


def describe_place(place: Path) -> str:
    """Name of a place in a figure."""
    kind = file_system(place)
    return f"/dev/shm ({kind})" if place == SHARED_MEMORY else f"disk ({kind})"


def require_room(place: Path, num_bytes: int) -> bool:
    """Whether weights of this size can be measured at `place` with all peers; False: without those that
    keep copies of their own. NoRoom, with figures, if not even the rest has room.

    Memory counts too: a run that makes a machine reclaim or swap measures that, and others on it suffer.
    """
    needed = MODELS_ON_PLACE * num_bytes
    free = shutil.disk_usage(place).free
    if free < needed:
        raise NoRoom(
            f"{place} has {free / 1e9:.1f} GB free, {needed / 1e9:.1f} are needed: use --gb or --disk"
        )
    in_memory = MODELS_IN_MEMORY + (MODELS_ON_PLACE if file_system(place) == "tmpfs" else 0)
    needed = in_memory * num_bytes + MEMORY_FOR_PROGRAMS
    free = psutil.virtual_memory().available
    if free < needed:
        raise NoRoom(
            f"{free / 1e9:.1f} GB of memory are available, {needed / 1e9:.1f} are needed: use --gb, or wait"
        )
    return free >= needed + MODELS_OF_PEERS * num_bytes


@contextmanager
def directory(place: Path) -> Iterator[Path]:
    """A new directory below `place`, which goes when it is left."""
    root = Path(tempfile.mkdtemp(prefix="live-eval-bench-", dir=place))
    try:
        yield root
    finally:
        for version in root.glob("store/versions/*"):
            version.chmod(0o755)  # sealed versions are read-only, directories too
        shutil.rmtree(root)
