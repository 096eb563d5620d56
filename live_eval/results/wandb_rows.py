"""What W&B is told: metric definitions, one row a result, and the run's summary. Pure.

Three families of keys, each with a step metric of its own that every one of its rows carries:

    live_eval/*            by live_eval/policy_version
    checkpoint_eval/*      by checkpoint_eval/train_step    checkpoints whose step is known
    checkpoint_eval_by_number/*  by .../number              checkpoints whose step is not known

Invariants: a row has a score only if its evaluation succeeded; the summary depends on which results
there are, never on the order in which they came.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from live_eval.reasons import JobStatus
from live_eval.results.keys import DatasetKeys, safe_metric
from live_eval.results.records import duration_s

if TYPE_CHECKING:
    from live_eval.results.rows import OutboxRow, VersionEvent
    from protocol.messages import JobResult


@dataclass(frozen=True, kw_only=True, slots=True)
class MetricDefinition:
    """One define_metric call; `name` may end in `*`."""

    name: str
    step_metric: str = ""
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class _Family:
    prefix: str
    step: str

    @property
    def step_key(self) -> str:
        return f"{self.prefix}/{self.step}"


_POLICY = _Family("live_eval", "policy_version")
_CHECKPOINT = _Family("checkpoint_eval", "train_step")
_UNNUMBERED = _Family("checkpoint_eval_by_number", "number")
_FAMILIES = (_POLICY, _CHECKPOINT, _UNNUMBERED)

DEFINITIONS: tuple[MetricDefinition, ...] = tuple(
    definition
    for family in _FAMILIES
    for definition in (
        MetricDefinition(name=family.step_key, hidden=True),
        MetricDefinition(name=f"{family.prefix}/*", step_metric=family.step_key),
    )
)
"""The step metrics first, then the globs that refer to them."""

STEP_METRICS = {family.prefix: family.step_key for family in _FAMILIES}
"""What each family's keys are drawn against."""


@dataclass(slots=True)
class _Series:
    """What the summary says of one dataset in one family."""

    last_step: int = -1
    last: dict[str, float] = field(default_factory=dict)
    best: float | None = None
    best_step: int = -1

    def add(self, step: int, score: float | None, values: dict[str, float]) -> None:
        if step >= self.last_step:
            self.last_step, self.last = step, values
        if score is None:
            return
        earlier_equal = score == self.best and step < self.best_step
        if self.best is None or score > self.best or earlier_equal:
            self.best, self.best_step = score, step


class WandbRows:
    """Turns outbox rows, all of them and in order, into W&B rows and the summary."""

    def __init__(self, keys: DatasetKeys) -> None:
        self._keys = keys
        self._statuses: Counter[str] = Counter()
        self._versions: Counter[str] = Counter()
        self._series: dict[tuple[str, str], _Series] = {}
        self._evaluated = -1
        self._sealed: dict[int, VersionEvent] = {}
        """Of the versions that the rows so far tell of."""

    def add(self, row: OutboxRow) -> dict[str, Any] | None:
        """Count the row; the W&B row of a result, None for a version event."""
        if row.result is None:
            if row.event is not None:
                self._versions[row.event.state] += 1
                if row.event.state == "sealed" and row.event.policy_version is not None:
                    self._sealed[row.event.policy_version] = row.event
            return None
        self._statuses[row.result.status] += 1
        return self._row(row.result)

    def summary(self) -> dict[str, Any]:
        """All summary values, by key."""
        values: dict[str, Any] = self._counters(_POLICY.prefix)
        if self._evaluated >= 0:
            values[_POLICY.step_key] = self._evaluated
        for (prefix, key), series in self._series.items():
            base = f"{prefix}/{key}"
            values.update({f"{base}/{name}": value for name, value in series.last.items()})
            values[f"{base}/last_step"] = series.last_step
            if series.best is not None:
                values[f"{base}/best_score"] = series.best
                values[f"{base}/best_step"] = series.best_step
        return values

    def _row(self, result: JobResult) -> dict[str, Any]:
        family, step = _place(result)
        prefix = family.prefix
        row: dict[str, Any] = {family.step_key: step}
        for name in ("result_id", "dataset", "status", "reason", "weight_digest", "checkpoint"):
            if value := getattr(result, name):
                row[f"{prefix}/{name}"] = value
        for name in ("train_step", "rollout_id", "requested_at", "started_at", "finished_at"):
            if (value := getattr(result, name)) is not None:
                row[f"{prefix}/{name}"] = value
        row.update(self._counters(prefix))
        if result.status != JobStatus.SUCCEEDED:
            return row
        key = self._keys.key(result.dataset)
        values = _values(result)
        row.update({f"{prefix}/{key}/{name}": value for name, value in values.items()})
        self._series.setdefault((prefix, key), _Series()).add(step, result.score, values)
        if family is _POLICY:
            row.update(self._lag(result))
            self._evaluated = max(self._evaluated, step)
        return row

    def _lag(self, result: JobResult) -> dict[str, float]:
        """How far the policy had gone on when its score was there, in versions and in seconds; and how
        long its sync held the trainer."""
        version, at = result.policy_version, result.finished_at
        if version is None or at is None or version not in self._sealed:
            return {}
        newer = [other for other, event in self._sealed.items() if other > version and event.at <= at]
        sealed, prefix = self._sealed[version], _POLICY.prefix
        lag = {f"{prefix}/lag_versions": len(newer), f"{prefix}/lag_s": max(0.0, at - sealed.at)}
        return lag if sealed.held_s is None else {**lag, f"{prefix}/held_s": sealed.held_s}

    def _counters(self, prefix: str) -> dict[str, Any]:
        if prefix != _POLICY.prefix:
            return {}
        totals = {f"{prefix}/{s.value}_total": self._statuses[s.value] for s in JobStatus if s.terminal}
        totals[f"{prefix}/discarded_total"] = self._versions["discarded"]
        return totals


def _place(result: JobResult) -> tuple[_Family, int]:
    """The family that the result belongs to, and its step there."""
    if result.policy_version is not None:
        return _POLICY, result.policy_version
    if result.train_step is not None:
        return _CHECKPOINT, result.train_step
    # A job of a checkpoint is named by its number: c3/dataset.
    return _UNNUMBERED, int(result.job_id.partition("/")[0].removeprefix("c"))


def _values(result: JobResult) -> dict[str, float]:
    """The numbers of a finished evaluation by their safe names; a metric never hides another value."""
    values: dict[str, float] = {}
    if result.score is not None:
        values["score"] = result.score
    for name in ("n_expected", "n_scored", "n_errored", "n_aborted"):
        values[name] = getattr(result, name)
    if result.n_expected:
        values["coverage"] = result.n_scored / result.n_expected
    seconds = duration_s(result.started_at, result.finished_at)
    if seconds is not None:
        values["duration_s"] = seconds
    for name, value in sorted(result.metrics.items()):
        key = safe_metric(name)
        if value is None or (key == "score" and value == result.score):
            continue
        while key in values:
            key += "_"
        values[key] = value
    return values
