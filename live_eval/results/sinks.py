"""Telling others about results: the Sink interface and the pump that feeds sinks from the ledger.

Owns one thread a sink, so that a sink that hangs holds up neither the service nor another sink.
Knows nothing of what a sink does with a row.

Invariant: each sink gets every outbox row, in order, at least once over all lives of the service;
a row is acknowledged only after the sink's `write` has returned. Nothing here raises into the
service, and no call waits longer than it was told.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from live_eval.errors import LiveEvalError

if TYPE_CHECKING:
    from live_eval.results.ledger import Ledger
    from live_eval.results.reader import LedgerReader
    from live_eval.results.rows import OutboxRow

_log = logging.getLogger(__name__)

_ABANDONED_S = 0.5

BATCH = 100
"""Rows handed to a sink at once."""


class SinkError(LiveEvalError):
    """A sink could not take rows; they stay in the ledger and are offered again."""

    code = "sink"


class Sink(Protocol):
    """A place that results are told to; called from one thread, the sink's own, but for `abandon`."""

    @property
    def name(self) -> str:
        """Unique among the sinks; names the cursor in the ledger."""
        ...

    def open(self, ledger: LedgerReader) -> int:
        """Make ready, again after an error; the seq up to which no rows are needed."""
        ...

    def write(self, rows: Sequence[OutboxRow]) -> None:
        """Take the rows; those that it has already are harmless. Raises if it has not taken all."""
        ...

    def close(self, *, timeout_s: float) -> None:
        """Give everything up, within `timeout_s`; never raises, also when it was never opened."""
        ...

    def abandon(self) -> None:
        """Break off what the sink's thread is in. The one method that is called from another
        thread: at the end, when the time is over. Never blocks, never raises."""
        ...


class SinkPump:
    """Feeds sinks from the ledger's outbox: start, wake at every new row, drain, close."""

    def __init__(
        self,
        ledger: Ledger,
        sinks: Sequence[Sink],
        *,
        clock: Callable[[], float] = time.time,
        retry_s: float = 0.5,
        max_retry_s: float = 60.0,
        look_s: float = 5.0,
    ) -> None:
        names = [sink.name for sink in sinks]
        if len(set(names)) != len(names):
            raise ValueError(f"sinks must have different names, got {names}")
        self._ledger = ledger
        self._feeds = [_Feed(ledger, sink, clock, retry_s, max_retry_s, look_s) for sink in sinks]

    def start(self) -> None:
        """Start the threads; returns at once, whatever the sinks do."""
        for feed in self._feeds:
            feed.thread.start()

    def wake(self) -> None:
        """There is a new row in the outbox. Never blocks."""
        for feed in self._feeds:
            feed.wake()

    def lag(self) -> dict[str, int]:
        """Rows that each sink has not taken yet; empty for none."""
        last = self._ledger.last_seq()
        behind = {feed.sink.name: last - feed.position for feed in self._feeds}
        return {name: rows for name, rows in behind.items() if rows > 0}

    def drain(self, timeout_s: float) -> dict[str, int]:
        """Wait until every sink has taken every row, or the time is over; what is left, as `lag`."""
        deadline = time.monotonic() + timeout_s
        last = self._ledger.last_seq()
        self.wake()
        for feed in self._feeds:
            feed.wait_for(last, deadline)
        return self.lag()

    def close(self, timeout_s: float) -> dict[str, int]:
        """Drain, close the sinks and end the threads, within `timeout_s` and a moment; what is left.

        A sink that is still busy then is abandoned; its rows stay in the ledger.
        """
        deadline = time.monotonic() + timeout_s
        # Half of the time for the rows, so that a sink has time to write out what it took.
        left = self.drain(timeout_s / 2)
        for feed in self._feeds:
            feed.stop(deadline)
        for feed in self._feeds:
            feed.join(deadline)
        for name, rows in left.items():
            _log.warning("sink %s closes with %d rows not taken; they are fed at the next start", name, rows)
        return left


class _Feed:
    """One sink's thread: open, feed, and after an error close, wait longer each time, open again."""

    def __init__(
        self,
        ledger: Ledger,
        sink: Sink,
        clock: Callable[[], float],
        retry_s: float,
        max_retry_s: float,
        look_s: float,
    ) -> None:
        self.sink = sink
        self.position = 0
        """seq of the last row that the sink has taken in this life."""
        self.thread = threading.Thread(target=self._run, name=f"sink-{sink.name}", daemon=True)
        self._ledger = ledger
        self._clock = clock
        self._retry_s = retry_s
        self._max_retry_s = max_retry_s
        self._look_s = look_s
        self._changed = threading.Condition()
        self._stopping = False
        self._woken = False
        self._deadline = 0.0

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def stop(self, deadline: float) -> None:
        with self._changed:
            self._stopping = True
            self._deadline = deadline
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        """Until the thread has ended; at the deadline its sink is abandoned."""
        if self.thread.ident is None:
            return
        self.thread.join(max(0.0, deadline - time.monotonic()))
        if self.thread.is_alive():
            self.sink.abandon()
            # Time to notice; a sink that does not is left behind with its thread, a daemon.
            self.thread.join(_ABANDONED_S)

    def wait_for(self, seq: int, deadline: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.position >= seq, max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        wait_s = self._retry_s
        while not self._stopping:
            try:
                self._advance(self.sink.open(self._ledger))
                while not self._stopping:
                    if self._feed_batch():
                        wait_s = self._retry_s
                    else:
                        self._idle()
            except Exception as error:  # a sink may fail in any way, the service goes on without it
                _log.warning("sink %s failed, again in %.1f s: %s", self.sink.name, wait_s, error)
                self._close_sink(5.0)
                self._pause(wait_s)
                wait_s = min(2 * wait_s, self._max_retry_s)
        self._close_sink(max(0.0, self._deadline - time.monotonic()))

    def _close_sink(self, timeout_s: float) -> None:
        try:
            self.sink.close(timeout_s=timeout_s)
        except Exception:  # as above: an error at the end must not hide what was done
            _log.exception("sink %s failed to close", self.sink.name)

    def _feed_batch(self) -> bool:
        """Hand the next rows over; False if there are none."""
        with self._changed:
            self._woken = False
        rows = self._ledger.outbox(after=self.position, limit=BATCH)
        if not rows:
            return False
        self.sink.write(rows)
        self._ledger.ack(self.sink.name, rows[-1].seq, now=self._clock())
        self._advance(rows[-1].seq)
        return True

    def _advance(self, seq: int) -> None:
        with self._changed:
            self.position = seq
            self._changed.notify_all()

    def _idle(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._woken or self._stopping, self._look_s)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, seconds)
