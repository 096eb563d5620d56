"""A run of slime's real scripts on a CPU (tests/slime_cpu/run.sh): for tests to start, wait for and read."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_eval.results.reader import LedgerReader
from live_eval.rundir import RunDir
from live_eval.store import VersionStore

if TYPE_CHECKING:
    from protocol.messages import JobResult

RUN = Path(__file__).resolve().parents[1] / "slime_cpu"
FULLY_ASYNC = "slime.rollout.fully_async_rollout.generate_rollout_fully_async"
LIMIT_S = 1200
ROUNDING = 1e-6
"""Sums of the same values in another order, in float64; a step of bfloat16 is far more."""
RAYS_OWN = (
    "gcs_server",
    "raylet",
    "ray/_private",
    "ray.scripts",
    "ray/dashboard",
    "ray/autoscaler",
    "ray.util.client",
    "ray::D",
    "ray::R",
    "ray::IDLE",
)
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

    def log(self) -> list[dict[str, Any]]:
        """What slime's parts were asked, in order."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def calls(self, method: str) -> list[dict[str, Any]]:
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

    def interrupt(self) -> None:
        """Ctrl-C at the driver."""
        pid = self.process("python\0-m\0slime_patch.run")
        assert pid is not None
        os.kill(pid, signal.SIGINT)

    def said(self) -> str:
        """What the driver and its actors have printed."""
        path = self.folder / "driver.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def left(self) -> list[str]:
        """Processes of the run, beside Ray's own, that were there some seconds after the driver's end."""
        lines = (self.folder / "left.txt").read_text().splitlines()
        return [line for line in lines if not any(word in line for word in RAYS_OWN)]

    def sums(self) -> dict[int, float]:
        """The sum of all parameters of each policy version that is kept."""
        import torch
        from safetensors.torch import load_file

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


def live_with(run: SlimeRun, reward: str) -> list[str]:
    """The flags of LIVE, with another reward function in eval than in training."""
    config = run.folder / "eval.yaml"
    config.write_text(
        "eval:\n  datasets:\n    - name: toy\n"
        f"      path: {RUN}/data/eval.jsonl\n      input_key: prompt\n      label_key: label\n"
        f"      custom_rm_path: slime_cpu.reward.{reward}\n      max_response_len: 8\n"
    )
    words = " ".join(LIVE)
    for flag in ("--eval-prompt-data toy", "--eval-input-key prompt", "--eval-label-key label"):
        words = words.replace(flag, "")
    return [*words.replace(f"{RUN}/data/eval.jsonl", "").split(), "--eval-config", str(config)]


def check_versions_hold_what_the_trainer_had(run: SlimeRun) -> None:
    """By content: a version's values add up to what the trainer sent in that very sync, and in no other."""
    trainer = {call["weight_version"]: call["sent_sum"] for call in run.calls("update_weights.end")}
    for version, total in run.sums().items():
        same = [each for each, sent in trainer.items() if math.isclose(sent, total, abs_tol=ROUNDING)]
        assert same == [version], (version, total, trainer)


def check_training_was_whole(run: SlimeRun, *, num_rollout: int) -> None:
    assert [call["rollout_id"] for call in run.calls("train")] == list(range(num_rollout))
    assert len(run.calls("update_weights.end")) == num_rollout + 1


def check_every_update_has_an_end(run: SlimeRun, *, num_updates: int) -> set[int]:
    """Each is a sealed version, with a job that ended, or discarded with a reason; those that are sealed."""
    with VersionStore.open(run.run_dir.store, max_bytes=1 << 40, keep_newest=num_updates) as store:
        sealed = {record.weight_version for record in store.records() if record.sealed_at is not None}
        reasons = {record.weight_version: record.reason for record in store.discarded()}
    assert sealed | reasons.keys() == set(range(1, num_updates + 1))
    assert all(reasons.values()) and not sealed & reasons.keys()
    results = run.results()
    assert all(each.reason for each in results.values())
    assert {each.policy_version for each in results.values()} == sealed
    newest = max(sealed)
    assert results[f"v{newest}/toy"].status == "succeeded"
    return sealed
