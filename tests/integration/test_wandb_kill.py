"""The W&B run after kill -9 of the service, and of everything that wrote it: each result exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from live_eval.results.ledger import Ledger
from live_eval.results.wandb_readback import read_run, result_ids
from live_eval.results.wandb_sink import wandb_run_id

REPO = Path(__file__).parents[2]


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts services that die with the test at the latest."""
    started: list[subprocess.Popen[str]] = []

    def act(first: int, last: int, *options: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "fakes.result_service",
            str(tmp_path),
            str(first),
            str(last),
            *options,
        ]
        env = {**os.environ, "PYTHONPATH": f"{REPO}:{REPO / 'tests'}"}
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield act
    for service in started:
        service.kill()
        service.wait()
        if service.stdout is not None:
            service.stdout.close()


def kill(service: subprocess.Popen[str], *, with_wandb: bool) -> list[psutil.Process]:
    """Kill -9; the processes that wrote for it, which end by themselves unless `with_wandb`."""
    helpers = psutil.Process(service.pid).children(recursive=True)
    service.send_signal(signal.SIGKILL)
    if with_wandb:
        for helper in helpers:
            with suppress(psutil.NoSuchProcess):  # it may have ended by itself
                helper.kill()
    service.communicate()
    return helpers


def wait_for(service: subprocess.Popen[str], word: str) -> None:
    assert service.stdout is not None
    for line in service.stdout:
        if line.strip() == word:
            return
    pytest.fail(f"the service ended before it said {word!r}")


def check_exactly_once(root: Path) -> int:
    """Rows of the W&B run and results of the ledger are the same set; how many."""
    with Ledger.open(root / "ledger.sqlite") as ledger:
        run = read_run(root / "wandb", wandb_run_id(ledger))
        names = [result.result_id for result in ledger.results()]
    assert sorted(result_ids(run.rows)) == sorted(names)
    newest = max(int(name.split("/")[1].removeprefix("v")) for name in names)
    assert run.summary["live_eval/rev/last_step"] == newest
    assert run.summary["live_eval/succeeded_total"] == len(names)
    return len(names)


@pytest.mark.parametrize("with_wandb", [False, True])
def test_each_result_is_there_once_after_kills_at_five_points(
    tmp_path: Path, start: Start, with_wandb: bool
) -> None:
    helpers: list[psutil.Process] = []
    points = [("", 0.0), ("ended", 0.0), ("ended", 0.7), ("fed", 0.0), ("fed", 0.3)]
    for life, (word, delay_s) in enumerate(points):
        service = start(1, 20 * (life + 1), "hold")
        if word:
            wait_for(service, word)
        time.sleep(delay_s)
        # The next life starts at once, while what wrote for this one may still be ending.
        helpers = kill(service, with_wandb=with_wandb)
    _, alive = psutil.wait_procs(helpers, timeout=60.0)
    assert alive == [], "a process of a killed life stayed behind"
    service = start(1, 101)
    wait_for(service, "fed")
    assert service.communicate(timeout=120.0) and service.returncode == 0
    assert check_exactly_once(tmp_path) == 2 * 101


def test_each_result_is_there_once_after_lives_that_were_killed_as_soon_as_they_had_begun(
    tmp_path: Path, start: Start
) -> None:
    """What writes for several of them waits at one time for what wrote before."""
    helpers: list[psutil.Process] = []
    for life in range(6):
        service = start(1, 20, "hold")
        wait_for(service, "ended")
        time.sleep(0.1 * life)
        helpers += kill(service, with_wandb=False)
    service = start(1, 21)
    wait_for(service, "fed")
    assert service.communicate(timeout=120.0) and service.returncode == 0
    assert check_exactly_once(tmp_path) == 2 * 21
    _, alive = psutil.wait_procs(helpers, timeout=60.0)
    assert alive == [], "a process of a killed life stayed behind"
