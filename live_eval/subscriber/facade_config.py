"""Settings of a receiver process, and how they are written on its command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class FacadeConfig:
    """Where to listen, and where and what to receive."""

    socket: Path
    store: Path
    base: Path
    """Checkpoint of the start, a directory in Hugging Face format."""
    max_bytes: int
    """Byte budget of the store."""
    keep_newest: int = 3
    allowed_absent: tuple[str, ...] = ()
    """Patterns of tensors that a sync need not carry."""
    service_socket: Path | None = None
    """Told to look after each outcome, if anybody listens."""
    deadline_s: float = 60.0
    """Longest silence within a sync; longer than the slowest bucket takes."""

    def arguments(self) -> list[str]:
        """The command line that `parse` turns into this."""
        found = [f"--socket={self.socket}", f"--store={self.store}", f"--base={self.base}"]
        found += [f"--max-bytes={self.max_bytes}", f"--keep-newest={self.keep_newest}"]
        found += [f"--deadline-s={self.deadline_s!r}"]
        found += [f"--allowed-absent={pattern}" for pattern in self.allowed_absent]
        if self.service_socket is not None:
            found.append(f"--service-socket={self.service_socket}")
        return found

    @classmethod
    def parse(cls, argv: list[str]) -> FacadeConfig:
        """Settings from a command line; exits with a message if it is wrong."""
        parser = argparse.ArgumentParser(
            prog="python -m live_eval.subscriber.facade",
            description="Receive weight syncs as one more rank of a trainer's torch.distributed group.",
        )
        parser.add_argument("--socket", type=Path, required=True, help="unix socket to listen on")
        parser.add_argument("--store", type=Path, required=True, help="directory of the version store")
        parser.add_argument("--base", type=Path, required=True, help="checkpoint of the start")
        parser.add_argument("--max-bytes", type=int, required=True, help="byte budget of the store")
        parser.add_argument("--keep-newest", type=int, default=3, help="unpinned versions to keep")
        parser.add_argument("--deadline-s", type=float, default=60.0, help="longest silence within a sync")
        parser.add_argument("--service-socket", type=Path, help="told to look after each sync")
        parser.add_argument(
            "--allowed-absent", action="append", default=[], help="pattern of tensors that may stay away"
        )
        found = vars(parser.parse_args(argv))
        found["allowed_absent"] = tuple(found["allowed_absent"])
        return cls(**found)
