"""Removals go on beside the loop, one at a time, and their faults are not lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import pytest

from live_eval.coordinator.collecting import Collecting
from live_eval.errors import StoreError

if TYPE_CHECKING:
    from live_eval.store.store import VersionStore

WAIT_S = 5.0


class SlowStore:
    """Its `collect` waits for `go_on`, then does what `then` does; counts."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.then: Callable[[], None] = lambda: None
        self.num_done = self.num_at_once = self.most_at_once = 0
        self._lock = threading.Lock()

    def collect(self) -> list[object]:
        with self._lock:
            self.num_at_once += 1
            self.most_at_once = max(self.most_at_once, self.num_at_once)
        self.begun.set()
        try:
            assert self.go_on.wait(WAIT_S)
            self.then()
        finally:
            with self._lock:
                self.num_at_once -= 1
                self.num_done += 1
        return []


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def faults() -> list[BaseException]:
    return []


@pytest.fixture
def collecting(store: SlowStore, faults: list[BaseException]) -> Collecting:
    return Collecting(cast("VersionStore", store), on_fault=faults.append)


async def begun(store: SlowStore) -> None:
    assert await asyncio.to_thread(store.begun.wait, WAIT_S)


async def test_the_loop_goes_on_during_a_removal_and_close_waits_for_it(
    store: SlowStore, collecting: Collecting
) -> None:
    collecting.ask()
    await begun(store)
    closing = asyncio.create_task(collecting.close(WAIT_S))
    await asyncio.sleep(0.05)
    assert not closing.done()
    store.go_on.set()
    await closing
    assert store.num_done == 1


async def test_what_is_asked_for_during_a_removal_is_one_more_after_it(
    store: SlowStore, collecting: Collecting
) -> None:
    collecting.ask()
    await begun(store)
    for _ in range(5):
        collecting.ask()
    store.go_on.set()
    await collecting.close(WAIT_S)
    assert (store.num_done, store.most_at_once) == (2, 1)
    collecting.ask()
    await asyncio.sleep(0.02)
    assert store.num_done == 2


async def test_close_does_not_wait_for_ever(store: SlowStore, collecting: Collecting) -> None:
    collecting.ask()
    await begun(store)
    async with asyncio.timeout(WAIT_S):
        await collecting.close(0.05)
    assert store.num_done == 0
    collecting.ask()
    store.go_on.set()
    await collecting.close(WAIT_S)
    assert store.num_done == 1


async def test_a_file_that_stays_is_tried_again(
    store: SlowStore, collecting: Collecting, faults: list[BaseException]
) -> None:
    def stays() -> None:
        store.then = lambda: None
        raise StoreError("the files of policy version 1 cannot be removed")

    store.then = stays
    collecting.ask()
    await begun(store)
    collecting.ask()
    store.go_on.set()
    await collecting.close(WAIT_S)
    assert (store.num_done, faults) == (2, [])


async def test_another_fault_is_told(
    store: SlowStore, collecting: Collecting, faults: list[BaseException]
) -> None:
    def breaks() -> None:
        raise ValueError("a fault of live-eval itself")

    store.then = breaks
    store.go_on.set()
    collecting.ask()
    await collecting.close(WAIT_S)
    await asyncio.sleep(0)
    assert [str(fault) for fault in faults] == ["a fault of live-eval itself"]
