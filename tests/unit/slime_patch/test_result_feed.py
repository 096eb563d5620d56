"""Results reach the driver whatever the service or a taker does, and nobody waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from live_eval.results.rows import OutboxRow, VersionEvent
from slime_patch.result_feed import News, ResultFeed


class Service:
    """Answers as the actor does; `away` counts the questions that get no answer."""

    def __init__(self) -> None:
        self.rows: list[OutboxRow] = []
        self.away = 0
        self.failed = False

    def __call__(self, after: int) -> News | None:
        if self.away > 0:
            self.away -= 1
            return None
        return News(rows=tuple(row for row in self.rows if row.seq > after), failed=self.failed)

    def add(self) -> None:
        seq = len(self.rows) + 1
        self.rows.append(OutboxRow(seq=seq, key=f"k{seq}", event=VersionEvent(key=f"k{seq}", state="sealed")))


class Bench:
    def __init__(self) -> None:
        self.service = Service()
        self.taken: list[int] = []
        self.given_up = 0
        self.feed: ResultFeed | None = None

    def start(self, *more: object, look_s: float = 0.005) -> ResultFeed:
        takers = [lambda row: self.taken.append(row.seq), *more]
        self.feed = ResultFeed(self.service, takers, on_service_failed=self._failed, look_s=look_s)  # type: ignore[arg-type]
        self.feed.start()
        return self.feed

    def _failed(self) -> None:
        self.given_up += 1


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    if made.feed is not None:
        made.feed.stop(20.0)


def until(holds: object, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_each_row_comes_once_and_in_order_over_a_service_that_was_away(bench: Bench) -> None:
    bench.service.add()
    bench.start()
    until(lambda: bench.taken == [1])
    bench.service.away = 3
    bench.service.add()
    bench.service.add()
    until(lambda: bench.taken == [1, 2, 3])


def test_the_last_rows_are_taken_before_the_end(bench: Bench) -> None:
    feed = bench.start(look_s=60.0)
    bench.service.add()
    feed.stop(20.0)
    assert bench.taken == [1]


def test_a_taker_that_fails_costs_nobody_else_a_row(bench: Bench) -> None:
    def fails(row: OutboxRow) -> None:
        raise RuntimeError("W&B is down")

    feed = bench.start(fails)
    bench.service.add()
    bench.service.add()
    feed.stop(20.0)
    assert bench.taken == [1, 2]


def test_a_taker_that_hangs_is_not_waited_for(bench: Bench) -> None:
    hangs = threading.Event()
    feed = bench.start(lambda row: hangs.wait(5.0))
    bench.service.add()
    until(lambda: bench.taken == [1])
    began = time.monotonic()
    feed.stop(0.05)
    assert time.monotonic() - began < 4.0
    hangs.set()


def test_a_service_that_is_given_up_is_told_once(bench: Bench) -> None:
    bench.service.failed = True
    feed = bench.start()
    until(lambda: bench.given_up == 1)
    feed.stop(20.0)
    assert bench.given_up == 1
