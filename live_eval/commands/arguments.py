"""Argument types that several commands share; a bad value is a usage error that names it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def positive_int(text: str) -> int:
    """An integer of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive whole number")
    return value


def absolute_path(text: str) -> Path:
    """A path, made absolute against the current directory; it need not exist."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text).expanduser().absolute()


def run_directory(text: str) -> Path:
    """A directory that exists, made absolute: the place of a run."""
    path = absolute_path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no directory; give the --out directory of a run")
    return path
