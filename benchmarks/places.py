"""Where stores and exports are written: what kind of file system it is, and whether there is room."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil

MODELS_ON_PLACE = 5
"""Three versions, the export or the asynchronous checkpoint, and one to spare."""
MODELS_IN_MEMORY = 7
"""The weights, the staging slot, two copies of the peers, and what Ray's object store may hold."""
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


def require_room(place: Path, num_bytes: int) -> None:
    """NoRoom, with figures, if weights of this size cannot be measured at `place`.

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
