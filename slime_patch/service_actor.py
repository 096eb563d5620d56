"""The Ray actor on the eval engines' node: makes the run directory and keeps the service running.

It prepares the eval sets with slime's own reader, writes the service's configuration, and supervises
the service process, which launches the engines on the GPUs that Ray gave this actor. Ray restarts the
actor when it dies: everything here can be done twice.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import live_eval
from live_eval.channel import socket_path
from live_eval.errors import ConfigError
from live_eval.evaluation.datasets import load_eval_sets
from live_eval.evaluation.tokenizer import tokenizer_for
from live_eval.results.reader import LedgerReader
from live_eval.rundir import SERVICE_SOCKET, RunDir
from live_eval.store import BaseCheckpoint
from live_eval.store.place import check_place
from protocol.payload import ALIGNMENT
from slime_patch.prepare import load_tools, prepare
from slime_patch.result_feed import News
from slime_patch.reward import ARGUMENTS_ENV, write_arguments
from slime_patch.service_child import ServiceChild
from slime_patch.service_plan import ServicePlan, prepared_file, service_config, store_bytes
from slime_patch.slime_eval.plan import LOG_ENV, PLAN_ENV

logger = logging.getLogger(__name__)

MAX_LINES = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """What the driver must know of the run."""

    run_id: str
    run_dir: Path
    service_socket: Path
    staging_bytes: int
    """Host memory into which the whole model fits, in whatever order it comes."""
    store_bytes: int
    num_known: int = 0
    """Outbox rows of earlier jobs in the same directory."""
    gpus: tuple[str, ...] = ()
    """Ids of the eval engines' GPUs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceState:
    """How far the service is."""

    phase: str
    """starting, serving, draining, ending, finished, or failed."""
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    num_finished: int = 0
    num_restarts: int = 0
    engines: tuple[tuple[str, str], ...] = ()


class ServiceActor:
    """The actor's class; ConfigError, DatasetError or CorruptVersion where the plan cannot work."""

    def __init__(self, plan: ServicePlan) -> None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
        self._run_dir = RunDir(plan.run_dir)
        settings = plan.settings
        self._run_dir.make()
        _place_store(self._run_dir, settings.store_dir)
        base = BaseCheckpoint.read(settings.base)
        model_bytes = base.version_bytes
        budget = store_bytes(settings, model_bytes)
        if settings.taps_syncs:
            check_place(
                self._run_dir.store.resolve(),
                index_bytes=model_bytes,
                kept=settings.keep_versions,
                max_bytes=budget,
            )
        run_id = _run_id(self._run_dir) or plan.run_id
        config = service_config(plan, run_id=run_id, model_bytes=model_bytes, data_dir=self._run_dir.data)
        _prepare(plan, self._run_dir, load_tools)
        config.save(self._run_dir.config)
        socket = socket_path(self._run_dir.root, SERVICE_SOCKET)
        self._ready = Ready(
            run_id=run_id,
            run_dir=self._run_dir.root,
            service_socket=socket,
            staging_bytes=_staging_bytes(base),
            store_bytes=budget,
            num_known=_num_known(self._run_dir),
            gpus=_gpus(plan),
        )
        self._child = ServiceChild(
            self._run_dir.config,
            socket=socket,
            log=self._run_dir.logs / "service.log",
            environment=_environment(plan, self._run_dir),
            checkpoints=settings.checkpoints,
            submitted=self._run_dir.root / "checkpoints.submitted",
        )
        self._told_pid: int | None = None
        self._child.start()

    def ready(self) -> Ready:
        """The run is made and the service was started."""
        return self._ready

    def state(self) -> ServiceState:
        """How far the service is; answers within some seconds."""
        child = self._child
        if child.exit_status is not None:
            phase = "finished" if child.exit_status == 0 else "failed"
            return ServiceState(phase=phase, num_restarts=child.num_restarts)
        status = child.status()
        if status is None:
            phase = "ending" if child.pid is not None and child.pid == self._told_pid else "starting"
            return ServiceState(phase=phase, num_restarts=child.num_restarts)
        return ServiceState(
            phase=status.state,
            running=status.running,
            waiting=status.waiting,
            num_finished=status.num_finished,
            num_restarts=child.num_restarts,
            engines=tuple(sorted(status.engines.items())),
        )

    def news(self, after: int, limit: int) -> News:
        """At most `limit` outbox rows behind number `after`, and whether the service is given up."""
        failed = self._child.exit_status not in (None, 0)
        if not self._run_dir.ledger.exists():
            return News(failed=failed)
        with LedgerReader.open_readonly(self._run_dir.ledger) as ledger:
            return News(rows=tuple(ledger.outbox(after=after, limit=limit)), failed=failed)

    def training_ended(self) -> bool:
        """No sync comes any more; whether the service heard it."""
        pid, heard = self._child.pid, self._child.training_ended()
        if heard:
            self._told_pid = pid
        return heard

    def stop(self, grace_s: float) -> None:
        """End the service now; its jobs end with a reason."""
        self._child.stop(grace_s)

    def summary(self) -> list[str]:
        """The last results, one line each, and what became of all jobs."""
        return summary_lines(self._run_dir)


def summary_lines(run_dir: RunDir) -> list[str]:
    """See ServiceActor.summary."""
    if not run_dir.ledger.exists():
        return ["no result"]
    with LedgerReader.open_readonly(run_dir.ledger) as ledger:
        results, totals = ledger.results(), ledger.totals()
    lines = [
        f"{result.job_id}: {'no score' if result.score is None else f'score {result.score:.4f}'} "
        f"({result.status}, {result.reason}; rollout {result.rollout_id}, train step {result.train_step})"
        for result in results[-MAX_LINES:]
    ]
    counts = ", ".join(f"{number} {status}" for status, number in sorted(totals.by_status.items()) if number)
    return [*lines, f"jobs: {counts or 'none'}"]


def _staging_bytes(base: BaseCheckpoint) -> int:
    return sum(-(-meta.num_bytes // ALIGNMENT) * ALIGNMENT for meta in base.tensors.values())


def _place_store(run_dir: RunDir, store_dir: Path | None) -> None:
    """A store elsewhere is a link in the run directory, so that nothing else need know of it.

    On another node's own disk it is made anew where the link leads.
    """
    if store_dir is None or run_dir.store.exists():
        return
    is_linked = run_dir.store.is_symlink()
    target = run_dir.store.readlink() if is_linked else store_dir / run_dir.root.name
    try:
        target.mkdir(parents=True, exist_ok=True)
        if not is_linked:
            run_dir.store.symlink_to(target)
    except OSError as error:
        raise ConfigError(
            f"--eval-store-dir {store_dir}: cannot create {target}: {error.strerror}"
        ) from error


def _run_id(run_dir: RunDir) -> str | None:
    """A directory that was used before goes on as the run that it was."""
    if run_dir.ledger.exists():
        with LedgerReader.open_readonly(run_dir.ledger) as ledger:
            return ledger.run_id
    return None


def _num_known(run_dir: RunDir) -> int:
    if not run_dir.ledger.exists():
        return 0
    with LedgerReader.open_readonly(run_dir.ledger) as ledger:
        return ledger.last_seq()


def _prepare(plan: ServicePlan, run_dir: RunDir, tools: Callable[[Path], tuple]) -> None:
    own = [dataset.own for dataset in plan.settings.datasets if dataset.own is not None]
    tokenizer = tokenizer_for(own, plan.settings.base, trust_code=True)  # as slime does
    # The service reads them again; what is wrong with a file shall end the job now.
    for eval_set in load_eval_sets(own, tokenizer=tokenizer).values():
        logger.info(
            "dataset %s: %d rows, %d too long", eval_set.name, len(eval_set.rows), eval_set.num_dropped
        )
    by_slime = [(number, each) for number, each in enumerate(plan.settings.datasets) if each.by_slime]
    if by_slime:
        tokenizer, dataset_class = tools(plan.settings.base)
        for number, dataset in by_slime:
            target = prepared_file(run_dir.data, number)
            rows = prepare(dataset, target, tokenizer=tokenizer, dataset_class=dataset_class)
            logger.info("dataset %s: %d rows in %s", dataset.name, rows, target)
    write_arguments(_arguments_file(run_dir), plan.slime_arguments, plan.settings.datasets)
    if plan.slime_eval is not None:
        plan.slime_eval.write(_eval_file(run_dir))


def _arguments_file(run_dir: RunDir) -> Path:
    return run_dir.data / "slime_arguments.json"


def _eval_file(run_dir: RunDir) -> Path:
    return run_dir.data / "slime_eval.json"


def _environment(plan: ServicePlan, run_dir: RunDir) -> dict[str, str]:
    """What the service process needs beyond this one's environment."""
    root = str(Path(live_eval.__file__).parents[1])
    paths = dict.fromkeys(entry or os.getcwd() for entry in [*sys.path, root])
    environment = {"PYTHONPATH": os.pathsep.join(paths), ARGUMENTS_ENV: str(_arguments_file(run_dir))}
    if gpus := _gpus(plan):
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    if plan.slime_eval is not None:
        environment[PLAN_ENV] = str(_eval_file(run_dir))
        environment[LOG_ENV] = str(run_dir.logs / "slime_eval.log")
    if plan.settings.wandb is not None:
        environment |= plan.settings.wandb.environment
    return environment


def _gpus(plan: ServicePlan) -> tuple[str, ...]:
    """Ids of the GPUs that Ray gave this actor; none on a CPU."""
    engines = plan.settings.engines
    if not engines.num_gpus or engines.device == "cpu":
        return ()
    import ray

    return tuple(str(number) for number in ray.get_gpu_ids())
