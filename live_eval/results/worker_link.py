"""A helper process spoken to in JSON lines, with a deadline on every word.

Owns the child: it runs in a session of its own (a Ctrl-C or a kill of the service's group leaves it
time to write out what it holds) and ends by itself when its input closes. Knows nothing of W&B.
Invariant: no call waits longer than its `timeout_s`; after any SinkError the child is dead.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from live_eval.results.sinks import SinkError

_CHUNK = 65536


class WorkerLink:
    """Starts the process at once; `ask` exchanges one message for one answer."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with log.open("ab") as errors:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=dict(env),
                    start_new_session=True,
                )
        except OSError as error:
            raise SinkError(f"cannot start {command[0]}: {error}") from error
        self._log = log
        self._received = b""
        for pipe in self._pipes():
            os.set_blocking(pipe.fileno(), False)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def ask(self, message: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """The child's answer. SinkError if it is late, gone, or answers with an error."""
        deadline = time.monotonic() + timeout_s
        what = message.get("op", "message")
        try:
            self._send(json.dumps(message, allow_nan=False).encode() + b"\n", deadline)
            answer = json.loads(self._receive_line(deadline))
        except TimeoutError as error:
            self.kill()
            raise SinkError(f"no answer to {what!r} within {timeout_s:g} s (its log: {self._log})") from error
        except (OSError, EOFError, ValueError) as error:
            self.kill()
            raise SinkError(f"the process ended at {what!r}: {error} (its log: {self._log})") from error
        if "error" in answer:
            self.kill()
            raise SinkError(str(answer["error"]))
        return answer

    def end(self, *, timeout_s: float) -> bool:
        """Close its input and wait for its end; killed, and False, if that takes longer."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._close_pipes()
        return self._process.returncode == 0

    def abandon(self) -> None:
        """Kill the child and touch nothing else; for a thread other than the one that asks."""
        self._process.kill()

    def kill(self) -> None:
        """Kill the child, if it is still there, and take its exit status."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def _send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            _wait(self._stdin, selectors.EVENT_WRITE, deadline)
            # The pipe may take less than is offered.
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(self._stdin.fileno(), view) :]

    def _receive_line(self, deadline: float) -> bytes:
        while b"\n" not in self._received:
            _wait(self._stdout, selectors.EVENT_READ, deadline)
            data = os.read(self._stdout.fileno(), _CHUNK)
            if not data:
                raise EOFError("its output closed")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        return self._stdin, self._stdout

    def _close_pipes(self) -> None:
        for pipe in self._pipes():
            with contextlib.suppress(OSError):
                pipe.close()


def _wait(pipe: IO[bytes], event: int, deadline: float) -> None:
    """Until the pipe is ready; TimeoutError at the deadline."""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, event)
        if not selector.select(max(0.0, deadline - time.monotonic())):
            raise TimeoutError
