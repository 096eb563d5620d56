"""`live-eval demo`: prepares a run, drives it, and shows what came out."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import sys
import time
import uuid
from typing import TYPE_CHECKING

from live_eval.demo.driver import DemoDriver, DemoFailed
from live_eval.demo.plan import DemoOptions, earlier_run, prepare
from live_eval.demo.report import demo_report, num_scored, unfinished_jobs
from live_eval.demo.view import DemoView
from live_eval.errors import ConfigError
from live_eval.results.plot import plot_scores
from live_eval.results.reader import LedgerReader
from live_eval.results.tables import make_console, show_results

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from rich.console import Console

    from live_eval.rundir import RunDir

QUIET = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
"""For this process and its children: no hub, no warnings about forks."""


def run_demo(args: argparse.Namespace) -> int:
    """Run the demo of a parsed command line; 0 if every job ended and some have a score."""
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    os.environ |= {**QUIET, **os.environ}
    options = DemoOptions.of(args)
    view = DemoView(make_console())
    began = time.monotonic()
    view.say(f"preparing {options.out}: an untrained model and two held-out eval sets")
    earlier = earlier_run(options.out)
    run_dir = prepare(options)
    if earlier:
        view.say(f"the earlier run of {earlier} in {options.out} is replaced")
    if options.json_file is not None:
        check_writable(options.json_file)
    run_id = f"demo-{uuid.uuid4().hex[:8]}"
    failure: DemoFailed | None = None
    with view.live():
        try:
            asyncio.run(DemoDriver(options, run_dir, view, run_id=run_id).run())
        except asyncio.CancelledError:  # SIGTERM; everything has been ended
            return 143
        except DemoFailed as error:
            failure = error
    if failure is not None and not (run_dir.ledger.exists() and run_dir.catalogue.exists()):
        raise failure
    view.say(f"{'done' if failure is None else 'ended'} in {time.monotonic() - began:.0f} s")
    status = _show(options, run_dir, view.console)
    if failure is not None:
        raise failure  # after what there is to show: what was scored before it is whole
    return status


def _show(options: DemoOptions, run_dir: RunDir, console: Console) -> int:
    with LedgerReader.open_readonly(run_dir.ledger) as ledger:
        show_results(ledger, console)
        if results := ledger.results():
            plot_scores(results, run_dir.plot, title=f"live-eval demo, {options.on_update}")
    wandb_dirs = wandb_runs(run_dir)
    report = demo_report(run_dir, wandb_dirs=wandb_dirs)
    for sync in report["discarded"]:
        console.print(
            f"weight version {sync['weight_version']} was discarded: {sync['reason']} ({sync['detail']})",
            style="yellow",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
    if options.json_file is not None:
        options.json_file.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for what, path in (
        ("results", run_dir.ledger),
        ("as JSON lines", run_dir.results_jsonl),
        ("samples", run_dir.samples),
        ("versions", run_dir.store / "versions"),
        ("plot", run_dir.plot),
        *(("W&B (offline)", path) for path in wandb_dirs),
        ("this report", options.json_file),
    ):
        if path is not None and is_there(path):
            console.print(f"  {what:<14} {path}", soft_wrap=True, highlight=False, markup=False)
    again = results_command(run_dir.root, program=sys.argv[0])
    console.print(f"Look again: {again}", soft_wrap=True, highlight=False, markup=False)
    return 0 if num_scored(run_dir) and not unfinished_jobs(run_dir) else 1


def is_there(path: Path) -> bool:
    """Whether there is a file, or a folder with something in it."""
    return any(path.iterdir()) if path.is_dir() else path.exists()


def check_writable(file: Path) -> None:
    """Make the file's folder and open the file, before minutes of work; ConfigError if that fails."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("a").close()
    except OSError as error:
        raise ConfigError(f"cannot write --json {file}: {error.strerror}; give another file") from error


def results_command(root: Path, *, program: str) -> str:
    """A line for the shell that shows the results, by the program's name as this one was called."""
    name = program if program.endswith("live-eval") else "live-eval"
    return shlex.join([name, "results", str(root)])


def wandb_runs(run_dir: RunDir) -> list[Path]:
    """The offline run's directories, one a life of the service, oldest first."""
    return sorted((run_dir.wandb / "wandb").glob("offline-run-*"))
