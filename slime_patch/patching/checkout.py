"""A checkout of slime: its files as bytes, and which commit it is, for messages.

It does not know what is edited. Links are followed only inside of the checkout.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from live_eval.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkout:
    """The directory that holds train.py and the package slime."""

    root: Path

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Checkout:
        """Raises ConfigError if `path` is not a checkout of slime."""
        root = Path(path).expanduser().resolve()
        if not root.is_dir():
            raise ConfigError(f"{path} is not a directory: give the checkout of slime, where train.py lies")
        if not (root / "train.py").exists() or not (root / "slime").is_dir():
            raise ConfigError(
                f"{path} is not a checkout of slime: it needs train.py and the directory slime/ in it."
                " An installed slime has no train.py; clone https://github.com/THUDM/slime"
            )
        return cls(root=root)

    def place(self, file: str) -> Path:
        """The real file behind a name. Raises ConfigError if a link leads out of the checkout."""
        real = (self.root / file).resolve()
        if not real.is_relative_to(self.root):
            raise ConfigError(
                f"{self.root / file} is a link to {real}, outside of the checkout: patch it there"
            )
        return real

    def read(self, file: str) -> bytes | None:
        """Content of a file; None if it is not there. Raises ConfigError if it cannot be read."""
        place = self.place(file)
        try:
            return place.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{place} cannot be read: {error.strerror}") from error

    def describe(self) -> str:
        """Commit, its date and the nearest tag in words; says so if git does not know the directory."""
        if self._git("rev-parse", "--show-toplevel") != str(self.root):
            return "not a git checkout"
        commit = self._git("log", "-1", "--format=commit %h of %cs")
        tag = self._git("describe", "--tags", "HEAD")
        return ", ".join(part for part in (commit, tag) if part) or "no commit"

    def _git(self, *arguments: str) -> str:
        # Inside a git hook these would point to another repository.
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        command = ["git", "-C", str(self.root), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, timeout=20, check=False, env=env)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""
