"""Runs live-eval's service as a process and starts it again when it dies.

Owns that process, in a thread of its own. Invariants: one life at a time; a service that keeps dying
is given up after a bounded number of lives in a row; when this process goes, the child goes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from live_eval.channel import BlockingClient
from live_eval.errors import TransportError
from protocol.errors import ProtocolError
from protocol.messages import JobsAccepted, ServiceStatus, StatusRequest, SubmitCheckpoint, TrainingEnded

logger = logging.getLogger(__name__)

MAX_LIVES_IN_A_ROW = 5
FIRST_PAUSE_S = 1.0
LONG_LIFE_S = 300.0
"""A life this long was no failed start."""
LOOK_S = 0.5
ANSWER_TIMEOUT_S = 5.0


class ServiceChild:
    """One service, over all its lives; call `start` once."""

    def __init__(
        self,
        config: Path,
        *,
        socket: Path,
        log: Path,
        environment: Mapping[str, str],
        checkpoints: tuple[str, ...] = (),
        submitted: Path | None = None,
        module: str = "slime_patch.service_process",
    ) -> None:
        self._argv = [sys.executable, "-m", module, str(os.getpid()), str(config)]
        self._client = BlockingClient(socket)
        self._log = log
        self._environment = dict(environment)
        self._to_submit = list(checkpoints)
        self._submitted = submitted
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-eval-service", daemon=True)
        self.num_restarts = 0
        self.exit_status: int | None = None
        """Of the last life; None while one is to come or runs."""
        self._forget_submitted()

    def start(self) -> None:
        """Start the first life."""
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Of the present life."""
        return None if self._process is None else self._process.pid

    def status(self) -> ServiceStatus | None:
        """What the service says of itself; None if it does not answer."""
        with contextlib.suppress(TransportError, ProtocolError):
            answer = self._client.request(StatusRequest(), timeout_s=ANSWER_TIMEOUT_S)
            return answer if isinstance(answer, ServiceStatus) else None
        return None

    def training_ended(self) -> bool:
        """Tell the service; whether it heard."""
        try:
            self._client.request(TrainingEnded(), timeout_s=ANSWER_TIMEOUT_S)
        except (TransportError, ProtocolError) as error:
            logger.info("the service has not heard yet that training has ended: %s", error)
            return False
        return True

    def stop(self, grace_s: float) -> None:
        """SIGTERM, by which all jobs end with a reason; SIGKILL to the group after `grace_s`."""
        self._stop.set()
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace_s)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if self._thread.is_alive():
            self._thread.join(grace_s)
        self._client.close()

    # --- the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        short_lives = 0
        while not self._stop.is_set():
            began = time.monotonic()
            status = self._live()
            short_lives = 0 if time.monotonic() - began > LONG_LIFE_S else short_lives + 1
            if status == 0 or self._stop.is_set() or short_lives >= MAX_LIVES_IN_A_ROW:
                self.exit_status = status
                return
            pause_s = FIRST_PAUSE_S * 2**short_lives
            logger.warning(
                "the service ended with status %d, next life in %.0f s; see %s", status, pause_s, self._log
            )
            self.num_restarts += 1
            self._stop.wait(pause_s)
        self.exit_status = self.exit_status if self.exit_status is not None else -signal.SIGTERM

    def _live(self) -> int:
        # Started by this thread, which outlives it: the kernel ends it when its starter is gone.
        with self._log.open("ab") as log:
            self._process = process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._environment, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        while process.poll() is None:
            if self._to_submit:
                self._submit()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
        return process.returncode

    def _submit(self) -> None:
        """Hand over the next checkpoint, once the service listens."""
        path = self._to_submit[0]
        status = self.status()
        if status is None or status.state == "starting":
            return
        try:
            answer = self._client.request(SubmitCheckpoint(path=path), timeout_s=ANSWER_TIMEOUT_S)
        except (TransportError, ProtocolError) as error:
            logger.warning("checkpoint %s is not taken yet: %s", path, error)
            return
        if isinstance(answer, JobsAccepted):
            logger.info("checkpoint %s: jobs %s", path, ", ".join(answer.job_ids))
        self._to_submit.pop(0)
        if self._submitted is not None:
            with self._submitted.open("a", encoding="utf-8") as file:
                file.write(path + "\n")

    def _forget_submitted(self) -> None:
        """What an earlier life of this actor has handed over is in the service's ledger."""
        if self._submitted is None or not self._submitted.exists():
            return
        done = self._submitted.read_text(encoding="utf-8").splitlines()
        for path in done:
            if path in self._to_submit:
                self._to_submit.remove(path)
