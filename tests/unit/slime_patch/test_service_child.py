"""The service process is kept running, told what it must know, and gone in the end."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slime_patch import service_child
from slime_patch.service_child import ServiceChild

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_child, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(service_child, "LOOK_S", 0.05)


class Bench:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.children: list[ServiceChild] = []

    def child(self, *lives: str, checkpoints: tuple[str, ...] = ()) -> ServiceChild:
        plan = {"socket": str(self.directory / "s"), "lives": lives, "log": str(self.directory / "seen")}
        (self.directory / "plan.json").write_text(json.dumps(plan))
        child = ServiceChild(
            self.directory / "plan.json",
            socket=self.directory / "s",
            log=self.directory / "service.log",
            environment={"PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])},
            checkpoints=checkpoints,
            submitted=self.directory / "submitted",
            module="fakes.service_process",
        )
        self.children.append(child)
        child.start()
        return child

    def seen(self) -> list[str]:
        path = self.directory / "seen"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # a socket's path must be short
        made = Bench(Path(directory))
        yield made
        for child in made.children:
            child.stop(5.0)


def until(holds: Callable[[], object], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_service_that_dies_is_started_again(bench: Bench) -> None:
    child = bench.child("die", "die", "serve")
    until(child.status)
    assert child.num_restarts == 2
    assert child.exit_status is None


def test_a_killed_one_too(bench: Bench) -> None:
    child = bench.child("serve", "serve")
    until(child.status)
    first = child.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: child.pid != first and child.status())


def test_one_that_keeps_dying_is_given_up(bench: Bench) -> None:
    child = bench.child(*["die"] * 9)
    until(lambda: child.exit_status is not None)
    assert child.exit_status == 3
    assert child.num_restarts == service_child.MAX_LIVES_IN_A_ROW - 1


def test_the_end_of_training_is_told_and_the_service_ends_by_itself(bench: Bench) -> None:
    child = bench.child("serve")
    assert not child.training_ended()
    until(child.status)
    assert child.training_ended()
    until(lambda: child.exit_status is not None)
    assert child.exit_status == 0


def test_checkpoints_are_submitted_once_also_over_lives_of_the_supervisor(bench: Bench) -> None:
    first = bench.child("serve", checkpoints=("/a", "/b"))
    until(lambda: len(bench.seen()) == 2)
    first.stop(5.0)
    second = bench.child("serve", checkpoints=("/a", "/b", "/c"))
    until(lambda: len(bench.seen()) == 3)
    until(second.status)
    assert bench.seen() == ["/a", "/b", "/c"]


def test_stop_leaves_nothing(bench: Bench) -> None:
    child = bench.child("serve")
    until(child.status)
    pid = child.pid
    assert pid is not None
    child.stop(5.0)
    assert child.exit_status is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
