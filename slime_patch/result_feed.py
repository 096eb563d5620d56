"""Results on their way from the service to the driver, as they come.

One thread of the driver asks the service's actor every few seconds. Nobody waits for it: a service
that is away is asked again, and a taker that fails or hangs holds up nothing but this thread.
Invariant: each outbox row is given to every taker at most once, in order.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from live_eval.results.rows import OutboxRow

logger = logging.getLogger(__name__)

LOOK_S = 2.0
ANSWER_TIMEOUT_S = 10.0
BATCH = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class News:
    """What has happened since the last look."""

    rows: tuple[OutboxRow, ...] = ()
    failed: bool = False
    """Whether the service is given up."""


class Taker(Protocol):
    """Someone who is told; called from the feed's thread."""

    def __call__(self, row: OutboxRow) -> None:
        """Take one row. What it raises is logged."""
        ...


class ResultFeed:
    """Feeds takers until it is stopped."""

    def __init__(
        self,
        ask: Callable[[int], News | None],
        takers: Sequence[Taker],
        *,
        on_service_failed: Callable[[], None],
        look_s: float = LOOK_S,
    ) -> None:
        """`ask(after)`: the rows behind that number, or None if there is no answer now."""
        self._ask = ask
        self._takers = tuple(takers)
        self._on_service_failed = on_service_failed
        self._look_s = look_s
        self._after = 0
        self._told_failed = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-eval-results", daemon=True)

    @property
    def after(self) -> int:
        """Number of the last row that was taken."""
        return self._after

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Take what is there now, then end; returns after `timeout_s` at the latest."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        last = False
        while not last:
            last = self._stop.wait(self._look_s)
            while self._look() == BATCH:
                continue

    def _look(self) -> int:
        news = self._ask(self._after)
        if news is None:
            return 0
        for row in news.rows:
            self._after = row.seq
            for taker in self._takers:
                self._guarded(taker, row)
        if news.failed and not self._told_failed:
            self._told_failed = True
            self._guarded(lambda _: self._on_service_failed(), None)
        return len(news.rows)

    def _guarded(self, call: Callable[[Any], None], row: OutboxRow | None) -> None:
        try:
            call(row)
        except Exception:  # the thread's supervisor: W&B may fail in any way, training goes on
            logger.exception("a result could not be passed on: %s", row.key if row else "service failed")


def ask_actor(service: Callable[[], Any]) -> Callable[[int], News | None]:
    """Asks the service's actor as it is now, within a bound."""

    def ask(after: int) -> News | None:
        import ray
        import ray.exceptions

        try:
            return ray.get(service().news.remote(after, BATCH), timeout=ANSWER_TIMEOUT_S)
        except (ray.exceptions.RayError, OSError) as error:
            logger.debug("no news of the service: %s", error)
            return None

    return ask
