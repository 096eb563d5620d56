"""All parts of a run with transport ray on one host, and their process ids.

Started in the order in which they need each other, ended in the other. Invariant: whatever way this
process ends, they do.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.evals.model import EvalModel
from benchmarks.local_ray import local_ray
from benchmarks.soak.trainer import NAMESPACE
from live_eval.channel import socket_path
from live_eval.config import EngineSettings, HttpSettings, ServiceConfig, StoreSettings
from live_eval.engines.launch import EngineProcess, launch_settings
from live_eval.evaluation.datasets import EvalSetConfig
from live_eval.evaluation.sampling import SamplingParams
from live_eval.rundir import SERVICE_SOCKET, RunDir
from live_eval.scheduling.config import SchedulerConfig
from live_eval.store import BaseCheckpoint

REPO = Path(__file__).parents[2]
MODEL_BYTES = 6_000_000
VERSIONS_IN_STORE = 8
NUM_ROWS = 4
ANSWER_TOKENS = 4
RECEIVER = "receiver"
OBJECT_STORE_BYTES = 100 << 20
START_S = 180.0
STOP_S = 30.0


class SoakSite:
    """A context manager; `pids` has the processes while it is open. RuntimeError if they do not start."""

    def __init__(self, root: Path, *, every_s: float) -> None:
        """Everything is below `root`, but for Ray's own files; a version every `every_s` seconds."""
        self.run_dir = RunDir(root)
        self._every_s = every_s
        self._stack = ExitStack()
        self.pids: dict[str, int] = {}
        """trainer, receiver, service, engine; the last two with all that they have started."""
        self.raylet = 0
        """The process that holds Ray's object store."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus would ask; None before the service serves."""
        try:
            return self.run_dir.http_url.read_text().strip().rstrip("/") + "/metrics"
        except OSError:
            return None

    def _start(self) -> None:
        run_dir = self.run_dir
        run_dir.make()
        EvalModel(MODEL_BYTES).write(run_dir.base)
        engine = EngineProcess.start(
            launch_settings(run_dir.base, device="cpu"), log=run_dir.logs / "engine.log"
        )
        self._stack.callback(lambda: asyncio.run(engine.stop()))
        self.pids["engine"] = engine.pid
        node = self._stack.enter_context(local_ray(OBJECT_STORE_BYTES, namespace=NAMESPACE))
        max_bytes = VERSIONS_IN_STORE * BaseCheckpoint.read(run_dir.base).version_bytes
        self._start_receiver(max_bytes)
        asyncio.run(engine.wait_ready(START_S))
        self._config(engine.url, max_bytes).save(run_dir.config)
        self._child("service", "slime_patch.service_process", str(os.getpid()), str(run_dir.config))
        self._child(
            "trainer", "benchmarks.soak.trainer", str(run_dir.root), node.address, RECEIVER, str(MODEL_BYTES),
            str(self._every_s),
        )  # fmt: skip

    def _start_receiver(self, max_bytes: int) -> None:
        import ray

        from live_eval.subscriber.ray_receiver import RayReceiverConfig, start_ray_receiver

        config = RayReceiverConfig(
            store=self.run_dir.store,
            base=self.run_dir.base,
            max_bytes=max_bytes,
            keep_newest=2,
            service_socket=socket_path(self.run_dir.root, SERVICE_SOCKET),
        )
        actor: Any = start_ray_receiver(config, name=RECEIVER)
        self._stack.callback(ray.kill, actor, no_restart=True)
        own_pid, its_parent = ray.get(actor.__ray_call__.remote(lambda _: (os.getpid(), os.getppid())))
        self.pids["receiver"], self.raylet = own_pid, its_parent

    def _config(self, url: str, max_bytes: int) -> ServiceConfig:
        rows = ({"prompt": f"word {number} =", "label": "?"} for number in range(NUM_ROWS))
        path = self.run_dir.data / "words.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        sampling = SamplingParams(max_new_tokens=ANSWER_TOKENS, ignore_eos=True)
        return ServiceConfig(
            run_id="soak",
            run_dir=self.run_dir.root,
            base=self.run_dir.base,
            datasets=(EvalSetConfig(name="words", path=path, sampling=sampling),),
            scheduler=SchedulerConfig(datasets=("words",), on_update="finish"),
            store=StoreSettings(max_bytes=max_bytes, keep_newest=2),
            engines=EngineSettings(addresses=(url,), device="cpu"),
            http=HttpSettings(),
        )

    def _child(self, name: str, module: str, *arguments: str) -> None:
        with (self.run_dir.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=REPO,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._stack.callback(_end, process)
        self.pids[name] = process.pid

    def check(self) -> None:
        """RuntimeError if one of them has ended."""
        for name, pid in self.pids.items():
            try:
                gone = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            except OSError:
                gone = True
            if gone:
                raise RuntimeError(f"the {name} has ended: see {self.run_dir.logs}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    deadline = time.monotonic() + STOP_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    process.kill()
    process.wait()
