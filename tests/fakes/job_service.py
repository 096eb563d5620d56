"""The service's process as a driver has it, for tests that kill, freeze and start it again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from live_eval.channel.blocking import BlockingClient
from live_eval.errors import TransportError
from protocol.messages import Message, ServiceStatus, StatusRequest

TESTS = Path(__file__).resolve().parents[1]
WAIT_S = 120.0


class ServiceProcess:
    """`python -m live_eval.service CONFIG`, one life after the other."""

    def __init__(self, config: Path, *, socket: Path, log: Path) -> None:
        self.num_lives = 0
        self._config = config
        self._socket = socket
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, dies_at: tuple[str, int] | None = None) -> None:
        """Begin a life and return at once. `dies_at`: a point of fakes.killed_service, and at which time
        it is passed."""
        assert self._process is None or self._process.poll() is not None, "the life before has not ended"
        path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
        self.num_lives += 1
        program = ["live_eval.service"]
        if dies_at is not None:
            program = ["fakes.killed_service", dies_at[0], str(dies_at[1])]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *program, str(self._config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the present life."""
        assert self._process is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How the present life ended; None while it goes on."""
        return None if self._process is None else self._process.poll()

    def freeze(self) -> None:
        """Let it do nothing more, without knowing."""
        os.kill(self.pid, signal.SIGSTOP)

    def kill(self) -> None:
        """kill -9 to the process, not to its children; returns when it is gone."""
        assert self._process is not None
        assert self._process.poll() is None, f"the service had ended by itself:\n{self.log_tail()}"
        self._process.kill()
        self._process.wait(WAIT_S)

    def stop(self) -> None:
        """End it whatever state it is in."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(WAIT_S)

    def ask(self, message: Message, *, timeout_s: float = 10.0) -> Message:
        """The service's answer; TransportError if it is not there."""
        with BlockingClient(self._socket) as client:
            return client.request(message, timeout_s=timeout_s)

    def state(self) -> str:
        """What it says of itself, `gone` if it says nothing."""
        try:
            answer = self.ask(StatusRequest())
        except TransportError:
            return "gone"
        assert isinstance(answer, ServiceStatus)
        return answer.state

    def wait_state(self, *states: str, timeout_s: float = WAIT_S) -> None:
        """Until it says one of these."""
        deadline = time.monotonic() + timeout_s
        while (state := self.state()) not in states:
            assert self.returncode is None, f"ended with {self.returncode}:\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"the service is {state}:\n{self.log_tail()}"
            time.sleep(0.02)

    def log_tail(self, num_lines: int = 40) -> str:
        """The last lines of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-num_lines:])
