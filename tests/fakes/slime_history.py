"""Commits of a checkout of slime, exported to folders of their own; the checkout is only read."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

NUM_MONTHS = 6
FIRST_TAG = (0, 2, 4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Commit:
    """One commit, and why it is looked at: `first of 2026-03`, `v0.3.0`, `newest`."""

    name: str
    commit: str
    date: str


def git(repository: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout


def milestones(repository: Path) -> list[Commit]:
    """The first commit of each of the last six months, every tag from v0.2.4, the newest commit."""
    lines = git(repository, "log", "--first-parent", "--format=%h %cs").decode().split("\n")
    history = [tuple(line.split()) for line in lines if line]
    first_of = {date[:7]: (commit, date) for commit, date in history}  # newest first: the oldest stays
    months = sorted(first_of, reverse=True)[:NUM_MONTHS]
    found: list[Commit] = []
    for month in months:
        commit, date = first_of[month]
        found.append(Commit(name=f"first of {month}", commit=commit, date=date))
    for tag in git(repository, "tag", "--list", "v*").decode().split():
        number = re.match(r"v(\d+)\.(\d+)\.(\d+)", tag)
        if number and tuple(map(int, number.groups())) >= FIRST_TAG:
            commit, date = git(repository, "log", "-1", "--format=%h %cs", tag).decode().split()
            found.append(Commit(name=tag, commit=commit, date=date))
    found.append(Commit(name="newest", commit=history[0][0], date=history[0][1]))
    return sorted(found, key=lambda each: (each.date, each.name))


def export(repository: Path, commit: str, folder: Path) -> Path:
    """The scripts and the package of a commit, at `folder`."""
    archive = git(repository, "archive", "--format=tar", commit, "train.py", "train_async.py", "slime")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder
