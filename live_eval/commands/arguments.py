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


def port(text: str) -> int:
    """A TCP port, or 0 for any that is free."""
    if not text.isdecimal() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; give 0 to 65535 (0: any that is free)")
    return int(text)


def absolute_path(text: str) -> Path:
    """A path, made absolute against the current directory; it need not exist."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text).expanduser().absolute()


def directory(text: str) -> Path:
    """A directory that exists, made absolute."""
    path = absolute_path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no directory")
    return path


def run_directory(text: str) -> Path:
    """A directory that exists, made absolute: the place of a run."""
    try:
        return directory(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; give the --out directory of a run") from error
