"""A full disk is an answer: the version is refused, nothing is left of it, the next one is served."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.store_victim import VICTIM_MODEL

REPOSITORY = Path(__file__).parents[2]
NO_MOUNT = 42


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return VICTIM_MODEL.write(tmp_path / "base")


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def victim(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "fakes.store_victim", *map(str, arguments)]


def test_a_limit_on_the_size_of_a_file_is_a_full_store(tmp_path: Path, base: Path) -> None:
    done = run(victim("file_limit", tmp_path / "store", base))
    assert done.returncode == 0, done.stderr


def test_a_disk_that_is_full_is_a_full_store(tmp_path: Path, base: Path) -> None:
    """On a tiny tmpfs of a mount namespace of its own; where mounting is not allowed, by a file limit."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=24m none {shlex.quote(str(disk))} || exit {NO_MOUNT}"
    space = (
        ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--user", "--map-root-user"]
    )
    try:
        done = run(
            [*space, "sh", "-c", f"{mount}; exec {shlex.join(victim('full_disk', disk / 'store', base))}"]
        )
        mounted = done.returncode != NO_MOUNT and "unshare" not in done.stderr
    except FileNotFoundError:
        mounted = False
    if not mounted:
        done = run(victim("file_limit", disk / "store", base))
    assert done.returncode == 0, done.stderr
