"""Watches the node of eval engines, service and receiver; when it has gone, they are started on another.

One thread of the driver looks every few seconds. Ray itself would leave the receiver dead, which is tied to
a node id that never comes back, and would start the service wherever its GPUs are found, away from it.
Invariants: the training is never touched; a loss and a return are each said once in the driver's log.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from live_eval.errors import ConfigError

logger = logging.getLogger(__name__)

LOOK_S = 5.0


class Parts(Protocol):
    """What runs on the node."""

    @property
    def node_id(self) -> str:
        """Where it runs, or ran."""
        ...

    def lose(self) -> None:
        """The node is gone: let go of everything that was on it. Does not wait."""

    def start_again(self) -> bool:
        """Start on a node that has room; False while there is none. ConfigError if it does not start."""
        ...


class NodeWatch:
    """Looks until it is stopped. `live_nodes()`: ids of the cluster's nodes; None: left it."""

    def __init__(
        self,
        parts: Parts,
        live_nodes: Callable[[], list[str] | None],
        *,
        say: Callable[[str], None],
        look_s: float = LOOK_S,
    ) -> None:
        self._parts = parts
        self._live_nodes = live_nodes
        self._say = say
        self._look_s = look_s
        self._is_lost = False
        self._last_problem = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-eval-node", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more. Does not wait for a start that is under way."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._look_s):
            try:
                self.look()
            except Exception:  # the thread's supervisor: Ray may fail in any way, training goes on
                logger.exception("the eval engines' node cannot be watched")

    def look(self) -> None:
        """One look; what follows from it is done."""
        parts, nodes = self._parts, self._live_nodes()
        if nodes is None:
            self._stop.set()  # asked anything more, Ray would start a cluster of its own
            return
        if not self._is_lost:
            if parts.node_id in nodes:
                return
            self._is_lost = True
            self._say(
                f"the eval engines' node {parts.node_id[:12]} is gone. Training goes on; versions are "
                "discarded until a node with room for the eval engines is there"
            )
            parts.lose()
        try:
            if not parts.start_again():
                return
        except ConfigError as error:
            if str(error) != self._last_problem and not self._stop.is_set():
                self._last_problem = str(error)
                self._say(f"live eval could not be started again, which is tried on: {error}")
            return
        self._is_lost, self._last_problem = False, ""
        self._say(f"live eval goes on, on node {parts.node_id[:12]}")
