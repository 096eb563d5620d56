"""What `live-eval eval` does: a service in this process that ends when its checkpoints are evaluated."""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from live_eval.commands.service_options import log_to, service_config
from live_eval.commands.serving import engine_news, run_service, submit_new
from live_eval.demo.view import DemoView
from live_eval.reasons import JobStatus
from live_eval.results.reader import LedgerReader
from live_eval.results.tables import make_console, results_report, show_results
from live_eval.rundir import RunDir
from live_eval.service import Service
from live_eval.store.checkpoint import check_complete
from live_eval.targets import CheckpointTarget
from protocol.messages import EngineEvent, JobEvent

if TYPE_CHECKING:
    from live_eval.coordinator.coordinator import Coordinator
    from live_eval.results.rows import JobRow

RUNS = Path("live_eval_runs")
STOPPED = 130
"""Exit status after Ctrl-C."""


def evaluate(args: argparse.Namespace) -> int:
    """Evaluate; 0 if every job succeeded, 130 after Ctrl-C, else 1."""
    checkpoints = [Path(path) for path in dict.fromkeys(map(os.path.realpath, args.checkpoint))]
    for path in checkpoints:
        check_complete(path)
    run_dir = RunDir(args.out or (RUNS / time.strftime("eval-%Y%m%d-%H%M%S")).absolute())
    config = service_config(args, run_dir=run_dir.root, base=checkpoints[0])
    names = tuple(dataset.name for dataset in config.datasets)
    pairs = [(str(path), name) for path in checkpoints for name in names]
    if run_dir.ledger.is_file() and _all_done(run_dir, pairs):
        return _show(run_dir, pairs, as_json=args.json)
    log_to(run_dir.logs / "service.log")
    view = DemoView(Console(stderr=True))

    def begin(coordinator: Coordinator) -> None:
        config.save(run_dir.config)  # now that the directory is this process's own
        with LedgerReader.open_readonly(run_dir.ledger) as ledger:
            for path in checkpoints:
                submit_new(coordinator, names, ledger, path)
        coordinator.training_ended()

    def tell(event: JobEvent | EngineEvent) -> None:
        if isinstance(event, JobEvent):
            view.job(event)
        elif text := engine_news(event):
            view.say(text)

    service = Service(config, on_serving=begin, on_event=tell)
    view.say(f"starting the engines; the log is {run_dir.logs / 'service.log'}")
    run_service(service, view=view.live())
    if not service.stopped:
        return _show(run_dir, pairs, as_json=args.json)
    if _jobs(run_dir):
        return STOPPED if _show(run_dir, pairs, as_json=args.json) else 0
    view.say("stopped while starting; nothing was evaluated")
    return STOPPED


def _show(run_dir: RunDir, pairs: list[tuple[str, str]], *, as_json: bool) -> int:
    """Print what the run has; 0 if all pairs have succeeded, else 1."""
    with LedgerReader.open_readonly(run_dir.ledger) as ledger:
        if as_json:
            print(json.dumps(results_report(ledger), indent=2, allow_nan=False))
        else:
            console = make_console()
            show_results(ledger, console)
            console.print(f"results: {run_dir.root}", soft_wrap=True, highlight=False, markup=False)
    return 0 if _all_done(run_dir, pairs) else 1


def _all_done(run_dir: RunDir, pairs: list[tuple[str, str]]) -> bool:
    """Whether each checkpoint (by its real path) has succeeded on each dataset."""
    done = {
        (os.path.realpath(job.target.path), job.dataset)
        for job in _jobs(run_dir)
        if isinstance(job.target, CheckpointTarget) and job.status is JobStatus.SUCCEEDED
    }
    return done.issuperset(pairs)


def _jobs(run_dir: RunDir) -> list[JobRow]:
    """All jobs so far; none where the service did not get as far as its ledger."""
    if not run_dir.ledger.is_file():
        return []
    with LedgerReader.open_readonly(run_dir.ledger) as ledger:
        return list(ledger.jobs())
