"""What `live-eval serve` does: a service in this process, its address on the terminal, its log in a file."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.commands.service_options import log_to, read_token, service_config
from live_eval.config import HttpSettings, ServiceConfig
from live_eval.engines.client import SGLangClient
from live_eval.errors import ConfigError, EngineError, LiveEvalError
from live_eval.plain import plain
from live_eval.reasons import JobStatus
from live_eval.results.reader import LedgerReader
from live_eval.rundir import RunDir
from live_eval.service import Service
from live_eval.store.checkpoint import check_complete
from live_eval.targets import CheckpointTarget
from protocol.messages import EngineEvent, JobEvent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from live_eval.coordinator.coordinator import Coordinator

ATTACH_TIMEOUT_S = 10.0


def serve(args: argparse.Namespace) -> int:
    """Run the service; 0 after a signal."""
    run_dir = RunDir(args.out)
    http = HttpSettings(
        host=args.host,
        port=args.port,
        token=read_token(args.token_file),
        checkpoint_roots=tuple(args.checkpoint_root),
    )
    for path in args.eval_checkpoint:
        check_complete(path)
    config = service_config(
        args, run_dir=run_dir.root, base=_base(args), http=http, watch=tuple(args.eval_checkpoint_watch)
    )
    log_to(run_dir.logs / "service.log", tell_warnings=True)
    service = Service(
        config,
        on_serving=lambda coordinator: _begin(coordinator, config, args.eval_checkpoint),
        on_event=_Teller(),
    )
    _say(f"starting; the log is {run_dir.logs / 'service.log'}")
    run_service(service)
    return 0


def _base(args: argparse.Namespace) -> Path:
    """The model of the engines, as the user named it, or as a running one says."""
    named = [path for path in (args.base, *args.eval_checkpoint) if path is not None]
    return named[0] if named else asyncio.run(model_of(args.engine_address[0]))


def run_service(service: Service, *, view: AbstractContextManager[object] | None = None) -> None:
    """Run to the end; a second Ctrl-C ends this process at once, as a shell expects.

    `view` is around it, and left before the end in any case: it gives the terminal back its cursor.
    """
    try:
        with view or nullcontext():
            asyncio.run(service.run())
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)


async def model_of(url: str) -> Path:
    """The checkpoint with which a running engine was started; ConfigError if this host has it not."""
    try:
        async with asyncio.timeout(ATTACH_TIMEOUT_S), SGLangClient(url, name="engine") as client:
            info = await client.server_info()
    except (EngineError, TimeoutError) as error:
        raise ConfigError(f"--engine-address {url} does not answer: {error}; give --base") from error
    path = Path(info.model_path)
    if not path.is_dir():
        raise ConfigError(
            f"the engine at {url} serves {path}, which is no directory here: give the model with --base"
        )
    return path


def submit_new(
    coordinator: Coordinator, config_datasets: tuple[str, ...], ledger: LedgerReader, path: Path
) -> list[str]:
    """Submit a checkpoint on the datasets for which no job of it waits, runs or has succeeded."""
    done = {
        job.dataset
        for job in ledger.jobs()
        if isinstance(job.target, CheckpointTarget)
        and os.path.realpath(job.target.path) == os.path.realpath(path)
        and (not job.status.terminal or job.status is JobStatus.SUCCEEDED)
    }
    left = [name for name in config_datasets if name not in done]
    return list(coordinator.submit_checkpoint(str(path), left)) if left else []


def _begin(coordinator: Coordinator, config: ServiceConfig, checkpoints: list[Path]) -> None:
    run_dir = RunDir(config.run_dir)
    config.save(run_dir.config)  # now that the directory is this service's own
    _say(f"serving at {run_dir.http_url.read_text(encoding='utf-8').strip()}")
    names = tuple(dataset.name for dataset in config.datasets)
    with LedgerReader.open_readonly(run_dir.ledger) as ledger:
        for path in checkpoints:
            try:
                submit_new(coordinator, names, ledger, path)
            except LiveEvalError as error:
                _say(f"{path} is not evaluated: {error}")


class _Teller:
    """Tells a person each change once, in a line."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def __call__(self, event: JobEvent | EngineEvent) -> None:
        """One event of the service."""
        if isinstance(event, EngineEvent):
            if text := engine_news(event):
                _say(text)
            return
        if self._told.get(event.job_id) == event.status:
            return
        self._told[event.job_id] = event.status
        status = JobStatus(event.status)
        score = "" if event.score is None else f", score {event.score:.3f}"
        reason = f" ({event.reason})" if status.terminal and status is not JobStatus.SUCCEEDED else ""
        subject = f" {event.checkpoint}" if event.checkpoint else ""
        _say(f"{event.job_id}{subject}: {event.status}{reason}{score}")
        if status.terminal:
            del self._told[event.job_id]


def engine_news(event: EngineEvent) -> str:
    """What a person wants to know of an engine: that it is up, or in trouble; empty for its daily work."""
    if event.state == "ready" and event.detail:
        return f"engine {event.engine} is ready: {event.detail}"
    if event.state == "starting" and event.detail:
        return f"engine {event.engine} {event.detail}"
    if event.state in ("quarantined", "dead"):
        return f"engine {event.engine} is {event.state}: {event.detail}"
    return ""


def _say(text: str) -> None:
    print(plain(text), file=sys.stderr, flush=True)
