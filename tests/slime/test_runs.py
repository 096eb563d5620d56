"""slime's real scripts with live eval, on a CPU: real SGLang, real Ray, slime unedited.

Each run takes some minutes. SETUP_DIR is the folder that tests/slime_cpu/setup.sh made.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file

from live_eval.engines.launch import EngineProcess, launch_settings
from live_eval.results.reader import LedgerReader
from live_eval.rundir import RunDir
from live_eval.store import VersionStore

if TYPE_CHECKING:
    from protocol.messages import JobResult

RUN = Path(__file__).resolve().parents[1] / "slime_cpu"
FULLY_ASYNC = "slime.rollout.fully_async_rollout.generate_rollout_fully_async"
LIMIT_S = 1200
pytestmark = pytest.mark.timeout(LIMIT_S + 120)

LIVE = (
    f"--eval-mode latest-synced --eval-num-gpus 1 --eval-prompt-data toy {RUN}/data/eval.jsonl "
    "--eval-input-key prompt --eval-label-key label --n-samples-per-eval-prompt 2 --eval-max-response-len 8 "
    "--eval-keep-versions 20"
).split()


class SlimeRun:
    """One run of a script of slime, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run_dir = RunDir(folder / "live")
        self.tag = uuid.uuid4().hex
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, script: str, *words: str, num_rollout: int = 3, **environment: str) -> None:
        live = ["--eval-output-dir", str(self.run_dir.root)] if "--eval-mode" in words else []
        self._process = subprocess.Popen(
            ["bash", str(RUN / "run.sh"), script, *words, *live],
            env={
                **os.environ,
                "LIVE": "1",
                "OUT_DIR": str(self.folder),
                "NUM_ROLLOUT": str(num_rollout),
                "LIMIT": str(LIMIT_S),
                "SLIME_CPU_RUN_ID": self.tag,
                **environment,
            },
        )

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait()

    def until(self, holds: Callable[[], object], timeout_s: float = LIMIT_S) -> None:
        assert self._process is not None
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert self._process.poll() is None, "the run has ended"
            assert time.monotonic() < deadline
            time.sleep(0.3)

    def log(self) -> list[dict]:
        """What slime's parts were asked, in order."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def calls(self, method: str) -> list[dict]:
        return [call for call in self.log() if call["method"] == method]

    def results(self) -> dict[str, JobResult]:
        with LedgerReader.open_readonly(self.run_dir.ledger) as ledger:
            assert ledger.unfinished() == []
            return {result.job_id: result for result in ledger.results()}

    def process(self, title: str) -> int | None:
        """A process of this run whose command line starts with `title`."""
        mark = f"SLIME_CPU_RUN_ID={self.tag}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                mine = mark in (entry / "environ").read_bytes().split(b"\0")
                if mine and (entry / "cmdline").read_bytes().startswith(title.encode()):
                    return int(entry.name)
        return None

    def sums(self) -> dict[int, float]:
        """The sum of all parameters of each policy version that is kept."""
        with VersionStore.open(self.run_dir.store, max_bytes=1 << 40, keep_newest=20) as store:
            paths = {record.policy_version: store.path(record.policy_version) for record in store.sealed()}
        return {
            version: sum(
                float(tensor.to(torch.float64).sum())
                for file in path.glob("*.safetensors")
                for tensor in load_file(file).values()
            )
            for version, path in paths.items()
        }


@pytest.fixture
def run(tmp_path: Path) -> SlimeRun:
    return SlimeRun(tmp_path)


def check_versions_hold_what_the_trainer_had(run: SlimeRun) -> None:
    """By content: a version is nearest to the weights that the trainer had at that very sync."""
    trainer = {call["weight_version"]: call["param_sum"] for call in run.calls("update_weights.end")}
    for version, total in run.sums().items():
        nearest = min(trainer, key=lambda each: abs(trainer[each] - total))
        assert nearest == version, (version, total, trainer)


def check_training_was_whole(run: SlimeRun, *, num_rollout: int) -> None:
    assert [call["rollout_id"] for call in run.calls("train")] == list(range(num_rollout))
    assert len(run.calls("update_weights.end")) == num_rollout + 1


def test_fully_async_training_under_finish(run: SlimeRun) -> None:
    run.start("train_async.py", *LIVE, "--rollout-function-path", FULLY_ASYNC)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    check_versions_hold_what_the_trainer_had(run)
    last = run.results()["v4/toy"]
    assert (last.status, last.rollout_id, last.train_step) == ("succeeded", 2, 3)
    assert last.score is not None and last.n_scored == 8
    assert set(run.results()) == {f"v{version}/toy" for version in range(1, 5)}


def test_synchronous_training_under_queue_scores_every_version(run: SlimeRun) -> None:
    run.start("train.py", *LIVE, "--eval-on-update", "queue")
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    check_versions_hold_what_the_trainer_had(run)
    found = {name: (each.status, each.rollout_id, each.train_step) for name, each in run.results().items()}
    assert found == {
        "v1/toy": ("succeeded", None, 0),
        "v2/toy": ("succeeded", 0, 1),
        "v3/toy": ("succeeded", 1, 2),
        "v4/toy": ("succeeded", 2, 3),
    }
    assert run.calls("eval") == []  # slime's own, which would have stopped the training


def test_a_killed_receiver_costs_versions_and_no_training(run: SlimeRun) -> None:
    run.start("train_async.py", *LIVE, num_rollout=6)
    run.until(lambda: len(run.calls("update_weights.end")) >= 2)
    pid = run.process("ray::RayReceiver")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=6)
    check_versions_hold_what_the_trainer_had(run)
    assert run.results()["v7/toy"].status == "succeeded"


def test_a_killed_service_comes_back(run: SlimeRun) -> None:
    run.start("train.py", *LIVE, "--eval-on-update", "queue")
    run.until(lambda: len(run.calls("update_weights.end")) >= 2)
    pid = run.process("ray::ServiceActor")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    assert {each.status for each in run.results().values()} == {"succeeded"}


def test_checkpoints_are_evaluated_while_training_goes_on(run: SlimeRun) -> None:
    base = Path(os.environ["SETUP_DIR"]) / "tiny"
    words = [word if word != "latest-synced" else "checkpoint" for word in LIVE]
    run.start("train.py", *words, "--eval-checkpoint", str(base))
    assert run.wait() == 0
    check_training_was_whole(run, num_rollout=3)
    assert {name: each.status for name, each in run.results().items()} == {"c1/toy": "succeeded"}


async def test_running_engines_can_be_attached(run: SlimeRun) -> None:
    settings = launch_settings(Path(os.environ["SETUP_DIR"]) / "tiny", device="cpu")
    engine = EngineProcess.start(settings, log=run.folder / "engine.log")
    try:
        await engine.wait_ready()
        words = [*LIVE[: LIVE.index("--eval-num-gpus")], "--eval-engine-addrs", engine.url]
        words += LIVE[LIVE.index("--eval-num-gpus") + 2 :]
        run.start("train_async.py", *words, "--eval-on-update", "cancel")
        assert await asyncio.to_thread(run.wait) == 0
        assert engine.returncode is None
    finally:
        await engine.stop()
    check_training_was_whole(run, num_rollout=3)
    assert run.results()["v4/toy"].status == "succeeded"


def test_two_trainers_two_engines_and_several_buckets(run: SlimeRun) -> None:
    words = (*LIVE, "--eval-snapshot", "all", "--eval-interval", "2", "--update-weight-buffer-size", "65536")
    run.start("train_async.py", *words, TRAIN_GPUS="2", ROLLOUT_GPUS="2")
    assert run.wait() == 0
    assert len(run.calls("update_weights.end")) == 2 * 4
    check_versions_hold_what_the_trainer_had(run)
    assert set(run.sums()) == {1, 2, 3, 4}
    evaluated = {name for name, each in run.results().items() if each.status != "superseded"}
    assert evaluated <= {"v1/toy", "v3/toy", "v4/toy"}
    assert "v4/toy" in evaluated


def test_without_the_flags_the_engines_and_the_trainer_are_asked_the_same(tmp_path: Path) -> None:
    asked = []
    for live in ("", "1"):
        run = SlimeRun(tmp_path / f"live-{live or 0}")
        run.folder.mkdir()
        run.start("train.py", num_rollout=2, LIVE=live)
        assert run.wait() == 0
        kinds = ("trainer", "engine")
        asked.append([(call["who"], call["method"]) for call in run.log() if call["who"].startswith(kinds)])
    assert asked[0] == asked[1]
