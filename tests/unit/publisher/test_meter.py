"""What a trainer sees of its syncs, and how rarely it is told of trouble."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fakes.clock import FakeClock

from live_eval.publisher.base import SyncReport
from live_eval.publisher.meter import RareLog, SyncMeter
from protocol.messages import SyncOutcome

if TYPE_CHECKING:
    import pytest


def report(version: int, held_s: float) -> SyncReport:
    return SyncReport(weight_version=version, published=True, reason="", held_s=held_s)


def outcome(version: int, reason: str = "") -> SyncOutcome:
    state = "discarded" if reason else "sealed"
    return SyncOutcome(sync_id=f"a/{version}", weight_version=version, state=state, reason=reason)


def test_metrics_are_the_last_and_the_longest_hold_and_what_was_discarded_by_reason() -> None:
    meter = SyncMeter()
    for version, held_s in ((1, 0.5), (2, 0.25)):
        meter.reported(report(version, held_s))
    meter.ended(outcome(1))
    meter.ended(outcome(2, "store_full"))
    meter.failed("a bucket", ValueError("no"))
    assert meter.metrics() == {
        "live_eval/held_s": 0.25,
        "live_eval/max_held_s": 0.5,
        "live_eval/syncs": 2.0,
        "live_eval/discarded": 1.0,
        "live_eval/faults": 1.0,
        "live_eval/discarded/store_full": 1.0,
    }


def test_a_kind_of_trouble_is_logged_once_a_minute_with_how_often_it_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    meter = SyncMeter(RareLog(clock=clock))
    with caplog.at_level(logging.WARNING):
        for version in range(5):
            meter.ended(outcome(version, "store_full"))
        meter.ended(outcome(5, "incomplete"))
        clock.now += 61.0
        meter.ended(outcome(6, "store_full"))
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(" is discarded: ")[0] for line in lines] == [
        "weight version 0",
        "weight version 5",
        "weight version 6",
    ]
    assert lines[2].endswith("(4 more like this since the last such line)")
    assert meter.metrics()["live_eval/discarded"] == 7.0
