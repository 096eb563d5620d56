"""Work of live-eval stands behind the training step on a host that both share."""

from __future__ import annotations

import os
import threading

from live_eval.processes import STEPS_BACK, stand_back


def priority_in_thread(prepare: object = None) -> tuple[int, int]:
    """Priorities of a new thread and of one that it starts, after `prepare` was called in the first."""
    found: list[int] = []

    def note() -> None:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    def first() -> None:
        if callable(prepare):
            prepare()
        note()
        second = threading.Thread(target=note)
        second.start()
        second.join()

    thread = threading.Thread(target=first)
    thread.start()
    thread.join()
    return found[0], found[1]


def test_a_thread_that_stands_back_takes_its_children_along_and_nobody_else() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert priority_in_thread(stand_back) == (min(before + STEPS_BACK, 19),) * 2
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
    assert priority_in_thread() == (before, before)


def test_standing_back_again_and_again_ends_at_the_last_place() -> None:
    def often() -> None:
        for _ in range(10):
            stand_back()

    assert priority_in_thread(often) == (19, 19)


def test_a_thread_that_stands_back_takes_no_core_from_who_is_at_work() -> None:
    found: list[int] = []

    def stand_back_and_look() -> None:
        stand_back()
        found.append(os.sched_getscheduler(threading.get_native_id()))

    before = os.sched_getscheduler(0)
    thread = threading.Thread(target=stand_back_and_look)
    thread.start()
    thread.join()
    assert found == [os.SCHED_BATCH]
    assert os.sched_getscheduler(0) == before
