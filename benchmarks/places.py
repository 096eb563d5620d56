"""Where stores and exports are written: what kind of file system it is, and whether there is room."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MODELS_A_RUN = 6
"""Three versions, the export, the asynchronous checkpoint, and one to spare."""
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
    """NoRoom, with figures, if weights of this size cannot be measured at `place`."""
    needed = MODELS_A_RUN * num_bytes
    free = shutil.disk_usage(place).free
    if free < needed:
        raise NoRoom(
            f"{place} has {free / 1e9:.1f} GB free, {needed / 1e9:.1f} are needed: use --gb or --disk"
        )
