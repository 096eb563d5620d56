"""Starts, watches and ends one SGLang server.

Owns the process, its group, its log and what it leaves on disk; knows nothing of weights or
of the engine's state. Invariant: nothing of a server outlives stop(), nor its starter's death
(see engines/serve.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from live_eval.engines import serve
from live_eval.engines.client import SGLangClient
from live_eval.engines.embedded.settings import CPU_ARGS, CPU_ENV, STUBS_DIR
from live_eval.errors import ConfigError, EngineDied, EngineError, EngineTimeout

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 600.0
"""A small model on a CPU is up in 10 s; a large one on GPUs may compile and load for minutes."""
POLL_INTERVAL_S = 0.2
GRACE_S = 2.0
"""For the rest of a server whose main process is dead to end by itself."""
PORTS = range(20_000, 32_000)
"""Below those that systems give to outgoing connections, and at most 55,535: SGLang refuses to
start if port + 10,000 is no port."""
MAX_TMPDIR = 60
"""Longest temporary directory, in bytes, that leaves room for the name of a unix socket (107)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSettings:
    """What makes one server differ from another, without its address."""

    model_path: Path
    device: str
    dtype: str
    tp_size: int = 1
    args: tuple[str, ...] = ()
    """Arguments of sglang.launch_server besides model, dtype, tp, host and port; the last one wins."""
    env: dict[str, str] = field(default_factory=dict)
    append_paths: tuple[Path, ...] = ()
    """Directories for the end of the server's import path."""
    python: Path | None = None
    """Interpreter of the environment that has SGLang; None: this process' own."""


def read_config(model_path: Path) -> dict[str, object]:
    """The checkpoint's config.json; ConfigError if there is none to read."""
    file = model_path / "config.json"
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{model_path} is no Hugging Face checkpoint: {file}: {error}") from error
    if not isinstance(config, dict):
        raise ConfigError(f"{file} must hold a JSON object")
    return config


def text_config(config: dict[str, object]) -> dict[str, object]:
    """The language model's part of a config: multimodal ones nest it under text_config."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def checkpoint_dtype(model_path: Path) -> str:
    """The dtype that config.json names, for example `bfloat16`; ConfigError if it names none.

    SGLang's own default, `auto`, runs a float32 checkpoint in float16.
    """
    config = read_config(model_path)
    for part in (config, text_config(config)):
        for key in ("dtype", "torch_dtype"):
            if isinstance(value := part.get(key), str):
                return value.removeprefix("torch.")
    raise ConfigError(f"{model_path}/config.json names no dtype; set the engine's dtype yourself")


def launch_settings(
    model_path: Path,
    *,
    device: str = "cuda",
    dtype: str | None = None,
    tp_size: int = 1,
    first_gpu: int = 0,
    extra_args: tuple[str, ...] = (),
    python: Path | None = None,
) -> LaunchSettings:
    """Arguments and environment for a server of `model_path`.

    `device="cpu"` gives the embedded engine; anything else is plain SGLang. `dtype` is the
    checkpoint's own unless given. `first_gpu`: of `tp_size` in a row. `extra_args` override the defaults.
    """
    path = model_path.resolve()
    on_cpu = device == "cpu"
    device_args = CPU_ARGS if on_cpu else ("--device", device, "--base-gpu-id", str(first_gpu))
    env = {k: v for k, v in CPU_ENV.items() if k not in os.environ} if on_cpu else {}
    return LaunchSettings(
        model_path=path,
        device=device,
        dtype=dtype or checkpoint_dtype(path),
        tp_size=tp_size,
        args=(*device_args, *extra_args),
        env=env,
        append_paths=(STUBS_DIR,) if on_cpu else (),
        python=python,
    )


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody on `host` listens on now, one of PORTS; EngineError if there is none."""
    # Drawn at random: two services that start at one moment must not both take the first free one.
    for port in random.SystemRandom().sample(PORTS, min(200, len(PORTS))):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return port
    raise EngineError(f"no free port found on {host} between {PORTS.start} and {PORTS.stop}")


class EngineProcess:
    """One running SGLang server: three or more processes in a group of their own."""

    def __init__(
        self, popen: subprocess.Popen[bytes], *, name: str, url: str, log: Path, private: Path
    ) -> None:
        self.name = name
        self.url = url
        self.log = log
        self._popen = popen
        self._private = private
        self._shared: set[Path] = set()

    @classmethod
    def start(
        cls, settings: LaunchSettings, *, log: Path, name: str = "engine", port: int | None = None
    ) -> EngineProcess:
        """Start a server on 127.0.0.1 and return at once; wait_ready() says when it serves.

        The log is appended to. The server ends when this process ends.
        """
        host, port = "127.0.0.1", port or free_port()
        private = _private_dir()
        command = [str(settings.python or sys.executable), "-P", serve.__file__, "--parent", str(os.getpid())]
        command += ["--private-dir", str(private)]
        if settings.device == "cpu":
            command.append("--fork-workers")
        for path in settings.append_paths:
            command += ["--append-path", str(path)]
        command += ["--", "--model-path", str(settings.model_path), "--dtype", settings.dtype]
        command += ["--tp-size", str(settings.tp_size), "--host", host, "--port", str(port), *settings.args]
        cache = f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}"
        env = {"TORCHINDUCTOR_CACHE_DIR": cache, **os.environ, **settings.env, "TMPDIR": str(private)}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            popen = subprocess.Popen(
                command,
                cwd=private,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        logger.info("engine %s: started pid %d on port %d, log %s", name, popen.pid, port, log)
        return cls(popen, name=name, url=f"http://{host}:{port}", log=log, private=private)

    @property
    def pid(self) -> int:
        """Id of the main process, which is the id of its process group as well."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Exit status of the main process, negative for a signal; None while it runs."""
        return self._popen.poll()

    async def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when the server has generated a token; EngineDied or EngineTimeout if it does not."""
        deadline = time.monotonic() + timeout_s
        async with SGLangClient(self.url, name=self.name) as client:
            while time.monotonic() < deadline:
                if self.returncode is not None:
                    raise EngineDied(
                        f"engine {self.name} ended with status {self.returncode} while starting; "
                        f"last lines of {self.log}:\n{self.log_tail()}"
                    )
                try:
                    await client.model_info(timeout_s=5.0)
                    # An answer about the model is no proof: the workers may be dead or stuck.
                    await client.logprobs([[1, 2, 3]], timeout_s=max(1.0, deadline - time.monotonic()))
                    await client.freeze_gc()
                except EngineError as error:
                    logger.debug("engine %s is not ready: %s", self.name, error)
                    await asyncio.sleep(POLL_INTERVAL_S)
                    continue
                self._shared |= serve.shared_files(self.pid)
                return
        raise EngineTimeout(
            f"engine {self.name} was not ready in {timeout_s:.0f} s; "
            f"last lines of {self.log}:\n{self.log_tail()}"
        )

    async def wait(self) -> int:
        """Exit status of the main process, once it has ended."""
        while (status := self.returncode) is None:  # noqa: ASYNC110 - a child watcher is tied to one loop
            await asyncio.sleep(POLL_INTERVAL_S)
        return status

    async def stop(self, timeout_s: float = 10.0) -> None:
        """End the whole group and remove what it leaves; harmless when it is gone already.

        A server holds nothing worth a graceful end, which takes SGLang 6 s.
        """
        if self.returncode is not None:
            # Its workers are ending too, and Python's resource tracker among them unlinks semaphores.
            await self._gone_within(GRACE_S)
        self.kill()
        if not await self._gone_within(timeout_s):
            raise EngineTimeout(
                f"engine {self.name}: process group {self.pid} survived SIGKILL {timeout_s} s"
            )
        serve.remove_all(self._shared, self._private)

    def kill(self) -> None:
        """SIGKILL to the whole group, without waiting."""
        self._shared |= serve.shared_files(self.pid)
        # The number of a group that is gone may belong to somebody else by now.
        if self._popen.poll() is None or serve.group_members(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    async def _gone_within(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self._popen.poll() is None or serve.group_members(self.pid):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    def log_tail(self, num_lines: int = 15) -> str:
        """The last lines of the server's log."""
        with self.log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-num_lines:])


def _private_dir() -> Path:
    """A temporary directory for the server's sockets, short enough for their names."""
    base = tempfile.gettempdir()
    if len(os.fsencode(base)) > MAX_TMPDIR:
        base = "/tmp"
    return Path(tempfile.mkdtemp(prefix="live-eval-", dir=base))
