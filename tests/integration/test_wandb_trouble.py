"""A wandb that hangs, fails or is not there never touches the caller; what waited is fed later."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import psutil
import pytest

from live_eval.results.ledger import Ledger
from live_eval.results.sinks import SinkPump
from live_eval.results.wandb_readback import read_run, result_ids
from live_eval.results.wandb_sink import WandbConfig, WandbSink, wandb_run_id
from live_eval.targets import PolicyTarget

STUBS = {
    "hanging": "def init(**settings):\n    import time\n    time.sleep(1000)\nclass Settings(dict): pass\n",
    "failing": "def init(**settings):\n    raise RuntimeError('refused')\nclass Settings(dict): pass\n",
    "stuck": (
        "import time\n"
        "class Settings(dict): pass\n"
        "class Run:\n"
        "    dir = '.'\n"
        "    summary = {}\n"
        "    def define_metric(self, *_, **__): pass\n"
        "    def log(self, row): time.sleep(1000)\n"
        "    def finish(self): time.sleep(1000)\n"
        "def init(**settings): return Run()\n"
    ),
    "dying": "import os\nos._exit(3)\n",
    "missing": "raise ImportError('wandb is not installed')\n",
}


HERE = Path(__file__).parent
CALLER = """
import sys
from pathlib import Path
sys.path.append(sys.argv[1])
from test_wandb_trouble import Ledger, WandbConfig, live
root = Path(sys.argv[2])
live(Ledger.open(root / "ledger.sqlite"), WandbConfig(dir=root / "out"), range(1, 2), close_s=0.5)
"""
CALLER_S = 8.0
"""Far above what a job's end costs on a busy machine, far below how long these hang."""


def end_one(ledger: Ledger, version: int) -> float:
    """End a job; the seconds that this took the caller."""
    began = time.monotonic()
    ledger.create_jobs(PolicyTarget(policy_version=version), ["rev"], now=1.0)
    ledger.start(f"v{version}/rev", now=2.0)
    result = ledger.outcome(f"v{version}/rev", status="succeeded", reason="completed", now=3.0)
    ledger.finish(msgspec.structs.replace(result, score=0.5))
    return time.monotonic() - began


def live(ledger: Ledger, config: WandbConfig, versions: range, *, close_s: float) -> dict[str, int]:
    """A life of a service with this W&B; what the sink has not taken at its end."""
    sink = WandbSink(config, run_id=wandb_run_id(ledger), datasets=["rev"])
    pump = SinkPump(ledger, [sink], retry_s=0.2)
    pump.start()
    for version in versions:
        began = time.monotonic()
        end_one(ledger, version)
        pump.wake()
        assert time.monotonic() - began < CALLER_S
        time.sleep(0.3)
    began = time.monotonic()
    left = pump.close(close_s)
    assert time.monotonic() - began < close_s + CALLER_S
    return left


def check_fed_later(ledger: Ledger, root: Path) -> None:
    """A life with a wandb that works brings every result to the run, once."""
    assert live(ledger, WandbConfig(dir=root), range(8, 9), close_s=60.0) == {}
    run = read_run(root / "wandb", wandb_run_id(ledger))
    assert sorted(result_ids(run.rows)) == [result.result_id for result in ledger.results()]


@pytest.mark.parametrize("kind", sorted(STUBS))
def test_a_broken_wandb_costs_the_caller_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "stubs" / "wandb").mkdir(parents=True)
    (tmp_path / "stubs" / "wandb" / "__init__.py").write_text(STUBS[kind])
    config = WandbConfig(dir=tmp_path, init_timeout_s=0.5, row_timeout_s=0.5, finish_timeout_s=1.0)
    children = set(psutil.Process().children(recursive=True))
    with Ledger.open(tmp_path / "ledger.sqlite", run_id="run") as ledger:
        with monkeypatch.context() as patch:
            patch.setenv("PYTHONPATH", str(tmp_path / "stubs"))
            assert live(ledger, config, range(5, 8), close_s=2.0) == {"wandb": 3}
        left_behind = set(psutil.Process().children(recursive=True)) - children
        _, alive = psutil.wait_procs(left_behind, timeout=30.0)
        assert alive == []
        if kind == "hanging":
            check_fed_later(ledger, tmp_path)


STUCK_ONCE = (
    "import pathlib, time\n"
    "class Settings(dict): pass\n"
    "class Run:\n"
    "    dir = '.'\n"
    "    summary = {}\n"
    "    def define_metric(self, *_, **__): pass\n"
    "    def finish(self): pass\n"
    "    def log(self, row):\n"
    "        been = pathlib.Path(__file__).with_name('been')\n"
    "        if not been.exists():\n"
    "            been.touch()\n"
    "            time.sleep(1000)\n"
    "def init(**settings): return Run()\n"
)


def test_a_row_that_hangs_is_given_up_in_its_time_and_fed_again_in_the_same_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stubs" / "wandb").mkdir(parents=True)
    (tmp_path / "stubs" / "wandb" / "__init__.py").write_text(STUCK_ONCE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stubs"))
    config = WandbConfig(dir=tmp_path, row_timeout_s=0.5, table_every_s=0)
    with Ledger.open(tmp_path / "ledger.sqlite", run_id="run") as ledger:
        sink = WandbSink(config, run_id=wandb_run_id(ledger), datasets=["rev"])
        pump = SinkPump(ledger, [sink], retry_s=0.1)
        pump.start()
        end_one(ledger, 5)
        pump.wake()
        assert pump.drain(60.0) == {}
        assert pump.close(20.0) == {}
    assert (tmp_path / "stubs" / "wandb" / "been").exists()


def test_a_server_that_never_answers_costs_the_caller_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, Ledger.open(tmp_path / "l.sqlite") as ledger:
        with monkeypatch.context() as patch:
            patch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
            patch.setenv("WANDB_API_KEY", "0" * 40)
            config = WandbConfig(dir=tmp_path, mode="online", init_timeout_s=2.0, finish_timeout_s=1.0)
            assert live(ledger, config, range(5, 8), close_s=4.0) == {"wandb": 3}
        check_fed_later(ledger, tmp_path)


class Refusing(BaseHTTPRequestHandler):
    """A W&B server that knows nobody by this key."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        data = b'{"errors": [{"message": "invalid api key"}]}'
        self.send_response(401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def test_a_wrong_key_costs_the_caller_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server,
        Ledger.open(tmp_path / "l.sqlite") as ledger,
    ):
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}")
            monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
            config = WandbConfig(dir=tmp_path, mode="online", init_timeout_s=5.0, finish_timeout_s=1.0)
            assert live(ledger, config, range(5, 8), close_s=4.0) == {"wandb": 3}
        finally:
            server.shutdown()
            thread.join()
        assert [result.job_id for result in ledger.results()] == ["v5/rev", "v6/rev", "v7/rev"]


def test_the_process_of_a_caller_with_a_hanging_wandb_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "__init__.py").write_text(STUBS["hanging"])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    began = time.monotonic()
    caller = subprocess.run([sys.executable, "-c", CALLER, HERE, tmp_path], cwd=HERE.parents[1], timeout=60)
    assert caller.returncode == 0
    assert time.monotonic() - began < 20.0
