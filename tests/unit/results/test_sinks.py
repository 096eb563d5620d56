"""Rules of the pump between the ledger and the sinks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from fakes.sinks import MemorySink, StuckSink

from live_eval.results.sinks import BATCH, SinkPump
from protocol.messages import JobResult

if TYPE_CHECKING:
    from live_eval.results.ledger import Ledger

Finish = Callable[..., JobResult]


def pump(ledger: Ledger, *sinks: MemorySink | StuckSink) -> SinkPump:
    return SinkPump(ledger, sinks, clock=lambda: 100.0, retry_s=0.01, look_s=60.0)


def test_a_sink_gets_every_row_in_order_and_then_acknowledges(ledger: Ledger, finish: Finish) -> None:
    sink = MemorySink()
    feeder = pump(ledger, sink)
    before = [finish(version).result_id for version in (5, 7)]
    feeder.start()
    after = finish(6).result_id
    feeder.wake()
    assert feeder.close(10.0) == {}
    assert sink.keys == [*before, after]
    assert ledger.cursor("memory") == ledger.last_seq()
    assert (sink.num_opened, sink.num_closed) == (1, 1)


def test_a_row_that_failed_is_offered_again_after_the_sink_was_opened_anew(
    ledger: Ledger, finish: Finish
) -> None:
    sink = MemorySink(num_failures=3)
    name = finish(5).result_id
    feeder = pump(ledger, sink)
    feeder.start()
    assert feeder.close(10.0) == {}
    assert sink.keys == [name] * 4
    assert (sink.num_opened, sink.num_closed) == (4, 4)


@pytest.mark.parametrize("deaf", [False, True])
def test_a_stuck_sink_holds_up_neither_others_nor_the_caller(
    ledger: Ledger, finish: Finish, deaf: bool
) -> None:
    stuck, sink = StuckSink(deaf=deaf), MemorySink()
    feeder = pump(ledger, stuck, sink)
    feeder.start()
    assert stuck.entered.wait(10.0)
    name = finish(5).result_id
    feeder.wake()
    deadline = time.monotonic() + 10.0
    while sink.keys != [name]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    began = time.monotonic()
    assert feeder.close(1.0) == {"stuck": 1}
    assert time.monotonic() - began < 10.0
    assert ledger.cursor("stuck") == 0
    stuck.release.set()


def test_drain_says_what_is_left_when_the_time_is_over(ledger: Ledger, finish: Finish) -> None:
    stuck = StuckSink()
    feeder = pump(ledger, stuck)
    finish(5)
    feeder.start()
    assert feeder.drain(0.1) == {"stuck": 1}
    stuck.release.set()
    feeder.close(5.0)


def test_a_new_life_goes_on_at_the_cursor(ledger: Ledger, finish: Finish) -> None:
    for version in (5, 6):
        sink = MemorySink()
        name = finish(version).result_id
        feeder = pump(ledger, sink)
        feeder.start()
        assert feeder.close(10.0) == {}
        assert sink.keys == [name]


def test_more_rows_than_one_batch_all_arrive(ledger: Ledger, finish: Finish) -> None:
    names = [finish(version).result_id for version in range(1, BATCH + 20)]
    sink = MemorySink(from_cursor=False)
    feeder = pump(ledger, sink)
    feeder.start()
    assert feeder.close(10.0) == {}
    assert sink.keys == names


def test_a_pump_that_never_started_can_be_closed(ledger: Ledger) -> None:
    assert pump(ledger, MemorySink()).close(0.1) == {}


def test_two_sinks_of_one_name_are_refused(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="different names"):
        pump(ledger, MemorySink(), MemorySink())
