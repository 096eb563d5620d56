"""`live-eval serve`, `submit`, `jobs` and `cancel` as a person uses them, over an engine that is played."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.engine import FakeEngine
from fakes.serve_cli import Serving, live_eval, serving, write_rows
from fakes.tiny_model import write_tiny_model

from live_eval.channel import BlockingClient, socket_path
from live_eval.rundir import SERVICE_SOCKET
from protocol.messages import TrainingEnded

TOKEN = "a-token-of-enough-characters"


@pytest.fixture(scope="module")
def engine(job_base: Path) -> Iterator[FakeEngine]:
    """In a thread of its own, since the tests wait for processes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="engine", daemon=True)
    thread.start()
    made = FakeEngine(model=job_base)
    asyncio.run_coroutine_threadsafe(made.__aenter__(), loop).result()
    yield made
    asyncio.run_coroutine_threadsafe(made.__aexit__(None, None, None), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("ckpt") / "step_5", seed=5)


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(TOKEN + "\n")
    return path


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, engine: FakeEngine, checkpoint: Path, token_file: Path
) -> Iterator[Serving]:
    """Without a base: the engine is asked for its model. With a folder to watch, and a token."""
    folder = tmp_path_factory.mktemp("serve")
    data = write_rows(folder / "a.jsonl", 4)
    watch = folder / "watch"
    options: list[str | Path] = ["--engine-address", engine.url, "--device", "cpu"]
    options += ["--eval-prompt-data", "a", data, "--label-key", "label", "--eval-max-response-len", "4"]
    options += ["--token-file", token_file, "--checkpoint-root", checkpoint.parent]
    options += ["--eval-checkpoint-watch", watch]
    with serving(folder / "run", *options, token=TOKEN) as made:
        yield made


def test_jobs_are_submitted_waited_for_and_listed_by_directory_and_by_address(
    service: Serving, checkpoint: Path, token_file: Path
) -> None:
    by_url = ("--url", service.url, "--token-file", token_file)
    jobs = json.loads(live_eval("submit", checkpoint, "--wait", "--json", *by_url).stdout)
    assert [(job["status"], job["checkpoint_name"]) for job in jobs] == [("succeeded", "step_5")]
    submitted = live_eval("submit", checkpoint, "--priority", "3", "--run", service.out, "--wait")
    assert "step_5" in submitted.stdout
    here = json.loads(live_eval("jobs", "--run", service.out, "--json").stdout)
    there = json.loads(live_eval("jobs", *by_url, "--json").stdout)
    assert here == there
    assert live_eval("jobs", "--run", service.out, "--status", "failed").stdout == "There are no jobs.\n"


def test_what_is_refused_says_what_to_do_and_ends_with_status_2(
    service: Serving, checkpoint: Path, token_file: Path, tmp_path: Path
) -> None:
    outside = shutil.copytree(checkpoint, tmp_path / "step_6")
    by_url = ("--url", service.url, "--token-file", token_file)
    (tmp_path / "iter_1").mkdir()
    (tmp_path / "iter_1" / "common.pt").touch()
    for arguments, message in (
        (("submit", outside, *by_url), "use a checkpoint below one of"),
        (("submit", tmp_path / "iter_1", "--run", service.out), "convert_torch_dist_to_hf.py"),
        (("submit", checkpoint, "--dataset", "b", "--run", service.out), "configured are: a"),
        (("jobs", "--url", service.url), "needs a token"),
        (("jobs", "--url", "localhost:1"), "give it as http://HOST:PORT"),
        (("cancel", "c99/a", *by_url), "no job 'c99/a'"),
        (("cancel", "c1/a", "--run", service.out), "c1/a has ended: succeeded"),
        (("jobs", "--url", "http://127.0.0.1:1"), "no service answers"),
    ):
        done = live_eval(*arguments, status=2)
        assert message in done.stderr
        assert done.stderr.startswith("error: ")


def test_a_running_job_is_cancelled_by_its_id(service: Serving, engine: FakeEngine, checkpoint: Path) -> None:
    engine.tokens_s = 3600.0
    try:
        job_id = live_eval("submit", checkpoint, "--run", service.out).stdout.strip()
        wait(service, job_id, "running")
        live_eval("cancel", job_id, "--run", service.out)
        assert wait(service, job_id, "cancelled")["reason"] == "user"
    finally:
        engine.tokens_s = 0.0


def test_a_watched_folder_is_evaluated_in_order_and_what_cannot_be_is_told(
    service: Serving, checkpoint: Path
) -> None:
    watch = service.out.parent / "watch"
    for name in ("step_100", "step_20"):
        shutil.copytree(checkpoint, watch / ".new" / name)
    (watch / "iter_7").mkdir()
    (watch / "iter_7" / "common.pt").touch()
    for name in ("step_20", "step_100"):  # the service may look in between
        (watch / ".new" / name).rename(watch / name)
    deadline = time.monotonic() + 60
    while "step_100: succeeded" not in service.log:
        assert time.monotonic() < deadline, service.log
        time.sleep(0.1)
    assert service.log.index("step_20: succeeded") < service.log.index("step_100: succeeded")
    assert "convert_torch_dist_to_hf.py" in service.log


def test_a_second_service_on_the_port_or_the_directory_says_which(
    service: Serving, engine: FakeEngine, tmp_path: Path
) -> None:
    data = write_rows(tmp_path / "a.jsonl", 1)
    options = ("--engine-address", engine.url, "--device", "cpu", "--eval-prompt-data", "a", data)
    options = (*options, "--label-key", "label", "--eval-max-response-len", "4")
    port = service.url.rpartition(":")[2]
    taken = live_eval("serve", "--out", tmp_path / "run", "--port", port, *options, status=2)
    assert f"cannot serve HTTP at {service.url}" in taken.stderr
    locked = live_eval("serve", "--out", service.out, "--port", "0", *options, status=2)
    assert "stop that service, or give this one another directory" in locked.stderr
    open_door = live_eval("serve", "--out", tmp_path / "run", "--host", "0.0.0.0", *options, status=2)
    assert "give a token" in open_door.stderr


def test_a_checkpoint_that_is_there_when_training_ends_is_evaluated_before_the_end(
    service: Serving, checkpoint: Path
) -> None:
    shutil.copytree(checkpoint, service.out.parent / "watch" / "step_300")
    with BlockingClient(socket_path(service.out, SERVICE_SOCKET)) as client:
        client.request(TrainingEnded(), timeout_s=20)
    assert service.wait_ended() == 0
    assert "step_300: succeeded" in service.log


def wait(service: Serving, job_id: str, status: str) -> dict:
    """The job once it has this status."""
    deadline = time.monotonic() + 60
    while (job := service.get(f"/jobs/{job_id}"))["status"] != status:
        assert time.monotonic() < deadline, job
        time.sleep(0.05)
    return job
