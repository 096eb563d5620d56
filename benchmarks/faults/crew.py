"""The processes of a run: receiver, service and trainer; started, asked, and started again.

Knows nothing of faults. Invariant: after `repair` all three live and answer.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from benchmarks.faults.processes import alive, kill, pid_of, state_of
from benchmarks.faults.sites import SITES, Site
from benchmarks.faults.trainer import Ready, TrainerSettings
from benchmarks.faults.workers import PRELOAD, Desk, run_service, run_trainer

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

STORE = {"max_bytes": 8 << 20, "keep_newest": 4}
ANSWER_S = 30.0
"""Longest wait for a trainer's answer: longer than all its deadlines together."""
START_S = 60.0
LOOK_S = 0.003
ROLES = ("receiver", "service", "trainer")


class TrainerHangs(Exception):
    """A trainer that lives gave no answer for longer than all its deadlines."""


class Crew:
    """Who takes part in the syncs of one run."""

    def __init__(self, desk: Desk, transport: str) -> None:
        self.restarts: Counter[str] = Counter()
        self.copy_s = 0.0
        """The slowest staging copy that a trainer has measured."""
        self.life = 0
        """Of the present trainer: 1, 2, ..."""
        self._desk = desk
        self._transport = transport
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)
        self._service_socket = desk.root / "s"
        self.site: Site = SITES[transport](desk, self._context, self._service_socket, STORE)
        self._service: BaseProcess | None = None
        self._trainer: BaseProcess | None = None
        self._connection: Connection | None = None

    def close(self) -> None:
        """End all of them."""
        self.end_trainer()
        if self._service is not None:
            self._service.kill()
            self._service.join()
        self.site.close()

    @property
    def trainer_lives(self) -> bool:
        """Whether the trainer can still answer."""
        return self._trainer is not None and alive(self._trainer.pid)

    def request(self, command: object, attend: Callable[[], None]) -> object | None:
        """The trainer's answer; None if it ends before. `attend` is called while it is waited for."""
        connection = self._connection
        assert connection is not None
        deadline = time.monotonic() + ANSWER_S
        try:
            connection.send(command)
            while not connection.poll(LOOK_S):
                attend()
                if not self.trainer_lives:
                    return None
                if time.monotonic() > deadline:
                    self.end_trainer()
                    raise TrainerHangs
            return connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return None

    def repair(self) -> None:
        """End what is frozen, start what is gone."""
        for role in ROLES:
            pid = pid_of(self._desk, role)
            if state_of(pid) == "T":
                kill(pid)
                self.restarts[f"{role}, frozen"] += 1
        self.site.ensure()
        if self._service is None or not self._service.is_alive():
            arguments = (self._desk, self._service_socket, STORE)
            self._service = self._context.Process(target=run_service, args=arguments, daemon=True)
            self._service.start()
            self.restarts["service"] += 1
        if not self.trainer_lives:
            self.restart_trainer()

    def restart_trainer(self) -> None:
        """Another life, whose weight versions begin at 1."""
        self.end_trainer()
        self.life += 1
        self.restarts["trainer"] += 1
        ours, theirs = self._context.Pipe()
        settings = TrainerSettings(
            transport=self._transport,
            life=self.life,
            where=self.site.where,
            deadline_s=self.site.deadline_s,
            socket=getattr(self.site, "socket", None),
        )
        self._trainer = self._context.Process(
            target=run_trainer, args=(self._desk, theirs, settings), daemon=True
        )
        self._trainer.start()
        theirs.close()
        self._connection = ours
        if not ours.poll(START_S) or not isinstance(ready := ours.recv(), Ready):
            log = self._desk.log("trainer").read_text()[-2000:]
            raise RuntimeError(f"the trainer does not start:\n{log}")
        self.copy_s = max(self.copy_s, ready.copy_s)

    def end_trainer(self) -> None:
        """Without a word."""
        if self._connection is not None:
            self._connection.close()
        if self._trainer is not None:
            self._trainer.kill()
            self._trainer.join()
