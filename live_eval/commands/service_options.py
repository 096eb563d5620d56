"""Options that `serve` and `eval` share, and the service's configuration that they make."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.commands.arguments import absolute_path, positive_int
from live_eval.evaluation.eval_options import add_eval_options

if TYPE_CHECKING:
    from live_eval.config import HttpSettings, ServiceConfig
    from live_eval.scheduling.config import EnginesPerEval

STORE_BYTES = 1 << 30
"""A budget that nothing uses: no trainer sends versions here."""
OWN_RUNS = "eval-"
"""How the ids of runs without a trainer begin."""


def add_service_options(parser: argparse.ArgumentParser) -> None:
    """Add what is evaluated, on which engines."""
    add_eval_options(parser)
    engines = parser.add_argument_group("eval engines")
    engines.add_argument(
        "--engines", type=positive_int, default=1, metavar="E", help="SGLang servers to launch (default 1)"
    )
    engines.add_argument(
        "--engine-address",
        nargs="+",
        action="extend",
        default=[],
        metavar="URL",
        help="running SGLang servers to use instead, for example http://127.0.0.1:30000",
    )
    engines.add_argument(
        "--engines-per-eval",
        type=_part,
        default="fair",
        metavar="N|fair|all",
        help="how many of them work on one checkpoint: N, so that several are evaluated side by side; fair"
        " (default), those free, divided among the checkpoints that wait; or all, one after the other",
    )
    engines.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        default=None,
        help="where launched engines compute (default: cuda where there is one, else cpu)",
    )
    engines.add_argument("--dtype", metavar="NAME", help="of the engines (default: the checkpoint's own)")
    engines.add_argument("--tp", type=positive_int, default=1, metavar="N", help="GPUs an engine (default 1)")
    engines.add_argument(
        "--engine-args",
        type=shlex.split,
        default=[],
        metavar="ARGS",
        help="further arguments of the SGLang servers, behind a = and in quotes: "
        "--engine-args='--trust-remote-code'",
    )
    engines.add_argument(
        "--eval-timeout-s",
        type=float,
        default=1800.0,
        metavar="S",
        help="longest time of one job (default 1800)",
    )


def service_config(
    args: argparse.Namespace,
    *,
    run_dir: Path,
    base: Path,
    http: HttpSettings | None = None,
    watch: tuple[Path, ...] = (),
) -> ServiceConfig:
    """The configuration of a service without a trainer; ConfigError says what cannot be."""
    from live_eval.commands.eval_data import datasets_of
    from live_eval.config import EngineSettings, ServiceConfig, StoreSettings
    from live_eval.evaluation.job import RunLimits
    from live_eval.scheduling.config import SchedulerConfig

    datasets = datasets_of(args)
    num_engines = len(args.engine_address) or args.engines
    return ServiceConfig(
        run_id=run_id_of(run_dir),
        run_dir=run_dir,
        base=base,
        datasets=datasets,
        scheduler=SchedulerConfig(
            datasets=tuple(dataset.name for dataset in datasets),
            on_update="queue",
            num_engines=num_engines,
            engines_per_eval=args.engines_per_eval,
            job_timeout_s=args.eval_timeout_s,
            drain_timeout_s=None,
        ),
        store=StoreSettings(max_bytes=STORE_BYTES),
        engines=EngineSettings(
            num_engines=args.engines,
            addresses=tuple(args.engine_address),
            device=args.device or default_device(),
            dtype=args.dtype,
            tp_size=args.tp,
            extra_args=tuple(args.engine_args),
        ),
        limits=RunLimits(timeout_s=args.eval_timeout_s, num_in_flight=2 * num_engines),
        http=http,
        checkpoint_watch=watch,
    )


def _part(text: str) -> EnginesPerEval:
    from live_eval.scheduling.config import engines_per_eval_of

    try:
        return engines_per_eval_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither all, fair nor a number of engines") from error


def run_id_of(run_dir: Path) -> str:
    """The run that the directory belongs to, so that it goes on; a new name where there is nothing yet.

    ConfigError if it is somebody else's: a service without a trainer would count its policy versions as
    over, and collect them.
    """
    from uuid import uuid4

    from live_eval.errors import ConfigError
    from live_eval.results.reader import LedgerReader
    from live_eval.rundir import RunDir

    place = RunDir(run_dir)
    if place.ledger.is_file():
        with LedgerReader.open_readonly(place.ledger) as reader:
            run_id = reader.run_id
        if not run_id.startswith(OWN_RUNS):
            raise ConfigError(
                f"{run_dir} is the directory of a run with a trainer ({run_id}), which stays as it is; "
                "give another --out"
            )
        return run_id
    if run_dir.exists() and not run_dir.is_dir():
        raise ConfigError(f"{run_dir} is no directory; give another --out")
    # These are there before the ledger: what ended while it started is started again.
    if run_dir.exists() and not set(run_dir.iterdir()) <= set(place.folders):
        raise ConfigError(
            f"{run_dir} is not empty, and neither eval nor serve made it; give a new directory for --out"
        )
    return f"{OWN_RUNS}{uuid4().hex[:8]}"


def default_device() -> str:
    """`cuda` where a GPU shows itself, without importing torch."""
    return "cuda" if any(Path("/dev").glob("nvidia[0-9]*")) else "cpu"


def add_out(parser: argparse.ArgumentParser, text: str, *, required: bool) -> None:
    """Add --out."""
    parser.add_argument("--out", type=absolute_path, required=required, metavar="DIR", help=text)


def log_to(file: Path, *, tell_warnings: bool = False) -> None:
    """Let everything be logged to a file instead of the terminal, which gets warnings where asked for."""
    import logging

    from live_eval.errors import ConfigError

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handlers: list[logging.Handler] = [logging.FileHandler(file, encoding="utf-8")]
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror}; give another --out") from error
    handlers[0].setFormatter(logging.Formatter("%(asctime)s %(name)s %(message)s"))
    if tell_warnings:
        terminal = logging.StreamHandler()
        terminal.setLevel(logging.WARNING)
        terminal.setFormatter(logging.Formatter("%(message)s"))
        handlers.append(terminal)
    logging.basicConfig(level="INFO", handlers=handlers)
    logging.getLogger("httpx").setLevel(logging.WARNING)


def read_token(file: Path | None) -> str | None:
    """The token of --token-file, else of LIVE_EVAL_HTTP_TOKEN, else None."""
    import os

    from live_eval.errors import ConfigError

    if file is None:
        return os.environ.get("LIVE_EVAL_HTTP_TOKEN") or None
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file} cannot be read: {error}") from error
    if not token:
        raise ConfigError(f"--token-file {file} is empty: write the token into it")
    return token
