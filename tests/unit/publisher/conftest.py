"""A publisher of transport ray over a link inside this process, to a real receiver and store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.link import FakeLink
from fakes.receiving import Desk
from fakes.sync import write_base

from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher

if TYPE_CHECKING:
    from protocol.messages import SyncOutcome

WAIT_S = 30.0
"""Longest wait for anything."""

CONFIG = RayPublisherConfig(
    run_id="run",
    slot_bytes=4096,
    incarnation_id="life-1",
    bucket_bytes=128,
    deadline_s=0.2,
    answer_timeout_s=5.0,
    sync_timeout_s=10.0,
)


class Side:
    """Both sides of the transport."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.link = FakeLink(desk.receiver)
        self.publishers: list[RayRefPublisher] = []

    def publisher(self, **changes: object) -> RayRefPublisher:
        """One more publisher, with some settings changed."""
        made = RayRefPublisher(self.link, replace(CONFIG, **changes))
        self.publishers.append(made)
        return made


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    desk = Desk.open(tmp_path / "store", write_base(tmp_path / "base", tied=True))
    side = Side(desk)
    yield side
    side.link.thaw()
    for publisher in side.publishers:
        publisher.close(5.0)
    desk.close()


@pytest.fixture
def outcomes() -> Callable[[RayRefPublisher, int], list[SyncOutcome]]:
    """Wait for that many outcomes."""

    def collect(publisher: RayRefPublisher, number: int) -> list[SyncOutcome]:
        found: list[SyncOutcome] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < number and time.monotonic() < deadline:
            found += publisher.outcomes()
            time.sleep(0.005)
        assert len(found) == number, found
        return found

    return collect


@pytest.fixture
def given_up(side: Side, caplog: pytest.LogCaptureFixture) -> Callable[[int], None]:
    """Wait until a version is given up and, if no other has it, the slot is free."""

    def wait(version: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while not (
            f"weight version {version} is given up" in caplog.text
            and all(publisher._pool._free for publisher in side.publishers)
        ):
            assert time.monotonic() < deadline
            time.sleep(0.005)

    return wait
