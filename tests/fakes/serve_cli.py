"""`live-eval` as a person starts it: the serving process, and commands beside it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
CLI = (sys.executable, "-m", "live_eval.cli")
WAIT_S = 90.0


def live_eval(*arguments: str | Path, status: int | None = 0) -> subprocess.CompletedProcess[str]:
    """One command, with what it printed."""
    done = subprocess.run(
        [*CLI, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=WAIT_S
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done


class Serving:
    """`live-eval serve` over one directory, one life after the other."""

    def __init__(self, out: Path, options: Sequence[str | Path], *, token: str = "") -> None:
        self.out = out
        self.url = ""
        self._options = [str(option) for option in options]
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """A life that takes work."""
        log = self.out.with_suffix(".log").open("a", encoding="utf-8")
        command = [*CLI, "serve", "--out", str(self.out), "--port", "0", *self._options]
        with log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, text=True)
        deadline = time.monotonic() + WAIT_S
        while not self._serves():
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(WAIT_S)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """As Ctrl-C does; its exit status."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self.wait_ended()

    def wait_ended(self) -> int:
        """Its exit status, when it ends by itself."""
        assert self._process is not None
        return self._process.wait(WAIT_S)

    def close(self) -> None:
        """Whatever state it is in."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(WAIT_S)

    @property
    def log(self) -> str:
        """What it told the person."""
        return self.out.with_suffix(".log").read_text(encoding="utf-8")

    def get(self, path: str, **params: Any) -> Any:
        """The JSON at a path of the API."""
        answer = httpx.get(f"{self.url}/api/v1{path}", params=params, headers=self._headers, timeout=10)
        return answer.raise_for_status().json()

    def post(self, path: str, body: Any) -> Any:
        """The JSON answer of the API."""
        answer = httpx.post(f"{self.url}/api/v1{path}", json=body, headers=self._headers, timeout=10)
        return answer.raise_for_status().json()

    def _serves(self) -> bool:
        try:
            self.url = (self.out / "http.url").read_text(encoding="utf-8").strip()
            return self.get("/status")["state"] == "serving"
        except (OSError, httpx.HTTPError):
            return False


@contextmanager
def serving(out: Path, *options: str | Path, token: str = "") -> Iterator[Serving]:
    """A service that takes work; gone at the end."""
    service = Serving(out, options, token=token)
    try:
        service.start()
        yield service
    finally:
        service.close()


@contextmanager
def events(url: str, **headers: str) -> Iterator[Iterator[tuple[str, str, Any]]]:
    """The event stream: (id, kind, data)."""
    with httpx.stream("GET", f"{url}/api/v1/events", headers=headers, timeout=WAIT_S) as answer:
        yield _parsed(answer.iter_lines())


def write_rows(path: Path, num: int, *, name: str = "a") -> Path:
    """Prompts and labels in slime's default fields."""
    rows = [{"id": f"r{n}", "input": f"{name}:{n} of {num}", "label": str(n)} for n in range(num)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _parsed(lines: Iterator[str]) -> Iterator[tuple[str, str, Any]]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            yield fields.get("id", ""), fields["event"], json.loads(fields["data"])
            fields = {}
