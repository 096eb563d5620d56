"""The W&B sink: a run of its own, fed one row a result through a process of its own.

Owns the choice of settings, the process and its deadlines. wandb itself is imported only in that
process (live_eval.results.wandb_worker): whatever it does (a hanging init, an exit hook that waits
for a network, a signal handler), the service does not notice, and rows wait in the ledger.

Invariant: read back from its files, the run has each result exactly once. wandb writes its file in
blocks, so a kill loses rows that it had taken; each start therefore reads which results are there
and feeds the others.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import live_eval
from live_eval.errors import ConfigError
from live_eval.results.keys import DatasetKeys
from live_eval.results.sinks import SinkError
from live_eval.results.wandb_extras import ALERTABLE, alert_of, result_cells, samples_wanted
from live_eval.results.wandb_rows import DEFINITIONS, WandbRows
from live_eval.results.worker_link import WorkerLink

if TYPE_CHECKING:
    from live_eval.results.ledger import Ledger
    from live_eval.results.reader import LedgerReader
    from live_eval.results.rows import OutboxRow

_RUN_ID = "wandb/run_id"

# What would make wandb write into the trainer's run, its directory or its process instead of ours.
_FOREIGN = (
    "WANDB_RUN_ID",
    "WANDB_RESUME",
    "WANDB_NAME",
    "WANDB_NOTES",
    "WANDB_DESCRIPTION",
    "WANDB_RUN_GROUP",
    "WANDB_JOB_TYPE",
    "WANDB_RUN_DIR",
    "WANDB_RUN_STORAGE_ID",
    "WANDB_DIR",
    "WANDB_MODE",
    "WANDB_DISABLED",
    "WANDB_SERVICE",
    "WANDB_SWEEP_ID",
    "WANDB_SWEEP_PARAM_PATH",
    "WANDB_CONFIG_PATHS",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WandbConfig:
    """Where the run is, and how long wandb may take."""

    dir: Path
    """wandb keeps its `wandb/` folder here."""
    project: str = "live-eval"
    group: str | None = None
    """The trainer's group, so that both runs stand together."""
    entity: str | None = None
    name: str | None = None
    mode: Literal["offline", "online"] = "offline"
    config: Mapping[str, Any] = field(default_factory=dict)
    """Shown as the run's config, for example the trainer's run id."""
    table_every_s: float = 60.0
    """At most so often the table of all results is written again, and at the end; 0 for no table."""
    sample_rows: int = 0
    """Samples of each scored job in a table of its own; 0 for none, since they are copied to W&B."""
    alerts: tuple[str, ...] = ("failed", "timed_out")
    """How jobs end that people are told of; `discarded` for syncs without a version."""
    init_timeout_s: float = 90.0
    row_timeout_s: float = 30.0
    finish_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        if self.mode not in ("offline", "online"):
            raise ConfigError(f"wandb mode is {self.mode!r}: choose offline or online")
        if unknown := sorted(set(self.alerts) - ALERTABLE):
            raise ConfigError(f"wandb alerts: {unknown} is none of {', '.join(sorted(ALERTABLE))}")
        if self.sample_rows < 0 or self.table_every_s < 0:
            raise ConfigError("wandb sample_rows and table_every_s must be 0 or more")
        for name in ("init_timeout_s", "row_timeout_s", "finish_timeout_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"wandb {name} is {getattr(self, name)}: give a positive number of seconds")


def wandb_run_id(ledger: Ledger) -> str:
    """The id of the ledger's own W&B run, the same in every life of the service."""
    run_id = ledger.get(_RUN_ID)
    if not isinstance(run_id, str):
        run_id = f"le{uuid.uuid4().hex[:10]}"
        ledger.put(_RUN_ID, run_id)
    return run_id


class WandbSink:
    """Feeds one W&B run."""

    name = "wandb"

    def __init__(
        self,
        config: WandbConfig,
        *,
        run_id: str,
        datasets: Sequence[str],
        log: Path | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        """`datasets`: the configured names; ConfigError if two would share a key. `run_id`: see
        `wandb_run_id`. `log`: where wandb's own words go. `command`: the process, for tests."""
        self._config = config
        self._datasets = tuple(datasets)
        self._run_id = run_id
        self._log = log or config.dir / "wandb" / "live-eval-worker.log"
        self._command = tuple(command or (sys.executable, "-m", "live_eval.results.wandb_worker"))
        self._keys = DatasetKeys(self._datasets)
        self._rows = WandbRows(self._keys)
        self._present: set[str] = set()
        self._link: WorkerLink | None = None
        self._table: list[list[Any]] = []
        self._table_at: float | None = None
        """When the table was written last; None if it never was, or lacks nothing."""
        self._fed = 0
        """Up to this row an earlier life has told people what they are told once."""
        self.run_dir = ""
        """Where wandb writes in this life; empty before it does."""

    def open(self, ledger: LedgerReader) -> int:
        """Start the process, begin or continue the run, learn what it has; 0: counters and summary
        need every row from the first, those that are there are skipped by name."""
        keys = DatasetKeys(self._datasets)
        self._rows, self._keys = WandbRows(keys), keys
        self._table, self._table_at, self._fed = [], None, ledger.cursor(self.name)
        self._link = WorkerLink(self._command, env=worker_env(), log=self._log)
        # wandb's own deadline ends first, so that its words are heard; an earlier process needs time too.
        timeout_s = self._config.init_timeout_s + 45.0
        answer = self._link.ask(self._start_message(ledger, keys), timeout_s=timeout_s)
        self._present = set(answer["present"])
        self.run_dir = str(answer["run_dir"])
        return 0

    def write(self, rows: Sequence[OutboxRow]) -> None:
        """Log the results among `rows` that the run has not, then the summary."""
        if self._link is None:
            raise SinkError("the W&B sink is not open")
        new: list[dict[str, Any]] = []
        names: list[str] = []
        for row in rows:
            logged = self._rows.add(row)
            if row.result is not None:
                self._table.append(result_cells(row.result, attempt=row.attempt))
            if logged is not None and row.key not in self._present:
                new.append(logged)
                names.append(row.key)
        message = {"op": "log", "rows": new, "summary": self._rows.summary(), **self._extras(rows, names)}
        self._link.ask(message, timeout_s=self._config.row_timeout_s)
        self._present.update(names)

    def _extras(self, rows: Sequence[OutboxRow], names: Collection[str]) -> dict[str, Any]:
        """Tables and alerts for the rows; `names`: those of them that the run has not."""
        config, now = self._config, time.monotonic()
        results = [row.result for row in rows if row.result is not None and row.key in names]
        extras: dict[str, Any] = {
            "alerts": [
                alert for row in rows if row.seq > self._fed and (alert := alert_of(row, config.alerts))
            ],
            "samples": [
                {"result_id": result.result_id, "key": self._keys.key(result.dataset)}
                | {"path": result.samples_path, "limit": config.sample_rows}
                for result in results
                if config.sample_rows and samples_wanted(result)
            ],
        }
        due = self._table_at is None or now - self._table_at >= config.table_every_s
        if config.table_every_s and self._table and due:
            self._table_at = now
            extras["table"] = self._table
        return extras

    def close(self, *, timeout_s: float) -> None:
        """Let wandb write everything out, for `timeout_s` or finish_timeout_s at most."""
        link, self._link = self._link, None
        if link is not None:
            self._write_last_table(link, timeout_s=timeout_s / 2)
            link.end(timeout_s=min(timeout_s, self._config.finish_timeout_s))

    def _write_last_table(self, link: WorkerLink, *, timeout_s: float) -> None:
        """Results that came since the table was written last."""
        if not self._config.table_every_s or not self._table or timeout_s <= 0:
            return
        message = {"op": "log", "rows": [], "summary": {}, "table": self._table}
        with contextlib.suppress(SinkError):  # it is in the next life's
            link.ask(message, timeout_s=min(timeout_s, self._config.row_timeout_s))

    def abandon(self) -> None:
        """Kill the process: whoever waits for its answer gets an error at once."""
        if (link := self._link) is not None:
            link.abandon()

    def _start_message(self, ledger: LedgerReader, keys: DatasetKeys) -> dict[str, Any]:
        config = self._config
        shown = {**config.config, "live_eval": {"run_id": ledger.run_id, "datasets": keys.as_dict()}}
        return {
            "op": "start",
            "run_id": self._run_id,
            "dir": str(config.dir),
            "mode": config.mode,
            "project": config.project,
            "group": config.group,
            "entity": config.entity,
            "name": config.name,
            "config": shown,
            "definitions": [asdict(definition) for definition in DEFINITIONS],
            "init_timeout_s": config.init_timeout_s,
            "finish_timeout_s": config.finish_timeout_s,
        }


def worker_env() -> dict[str, str]:
    """This process' environment without what points wandb at a run of somebody else, and with the
    place that this package was imported from."""
    env = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    root = str(Path(live_eval.__file__).resolve().parents[1])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (root, env.get("PYTHONPATH"))))
    return env
