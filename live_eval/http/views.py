"""Rows of ledger and catalogue as the API's items: pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from live_eval.http.figures import interval, metric_items
from live_eval.reasons import JobStatus
from live_eval.results.records import duration_s
from live_eval.store.records import VersionState
from live_eval.targets import CheckpointTarget

if TYPE_CHECKING:
    from live_eval.http.activity import EngineNow, Span
    from live_eval.results.pages import Attempt
    from live_eval.results.rows import JobRow, Transition
    from live_eval.store.records import DiscardRecord, PinRecord, VersionRecord
    from protocol.messages import JobResult

Estimate = dict[str, Any]


def job_item(
    row: JobRow, *, result: JobResult | None, estimate: Estimate | None = None, priority: int = 0
) -> dict[str, Any]:
    """An item of /jobs."""
    target = row.target
    checkpoint = target if isinstance(target, CheckpointTarget) else None
    running = row.status is JobStatus.RUNNING
    return {
        "job_id": row.job_id,
        "dataset": row.dataset,
        "kind": "checkpoint" if checkpoint else "live",
        "target": target.key,
        "policy_version": None if isinstance(target, CheckpointTarget) else target.policy_version,
        "checkpoint": checkpoint.path if checkpoint else None,
        "checkpoint_name": PurePath(checkpoint.path).name if checkpoint else None,
        "train_step": target.train_step,
        "rollout_id": None if isinstance(target, CheckpointTarget) else target.rollout_id,
        "status": row.status.value,
        "reason": row.reason,
        "detail": result.detail if result else "",
        "priority": priority,
        "protected": row.protected,
        "attempt": row.attempt,
        "requested_at": row.requested_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "duration_s": duration_s(row.started_at, row.finished_at),
        "num_done": row.num_done,
        "num_expected": row.num_expected,
        "estimate": estimate if running else None,
        "score": result.score if result else None,
        "interval": interval(result.metrics, "score") if result else None,
    }


def job_details(
    item: dict[str, Any],
    transitions: Sequence[Transition],
    attempts: Sequence[Attempt],
    result: dict[str, Any] | None,
) -> dict[str, Any]:
    """One job, with all that happened to it."""
    moves = [
        {key: value for key, value in asdict(transition).items() if key != "job_id"}
        for transition in transitions
    ]
    ran = [
        {
            "attempt": attempt.number,
            "began_at": attempt.began_at,
            "ended_at": attempt.ended_at,
            "outcome": attempt.outcome,
        }
        for attempt in attempts
        if attempt.began_at is not None
    ]
    return {**item, "transitions": moves, "attempts": ran, "result": result}


def result_item(result: JobResult, *, attempt: int) -> dict[str, Any]:
    """An item of /results."""
    return {
        "result_id": result.result_id,
        "job_id": result.job_id,
        "dataset": result.dataset,
        "kind": "checkpoint" if result.checkpoint else "live",
        "target": result.job_id.partition("/")[0],
        "status": result.status,
        "reason": result.reason,
        "detail": result.detail,
        "policy_version": result.policy_version,
        "checkpoint": result.checkpoint or None,
        "train_step": result.train_step,
        "rollout_id": result.rollout_id,
        "weight_digest": result.weight_digest,
        "score": result.score,
        "interval": interval(result.metrics, "score"),
        "metrics": metric_items(result.metrics),
        "partial": metric_items(result.partial),
        "n_expected": result.n_expected,
        "n_scored": result.n_scored,
        "n_errored": result.n_errored,
        "n_aborted": result.n_aborted,
        "engine_versions": list(result.engine_versions),
        "attempt": attempt,
        "requested_at": result.requested_at,
        "started_at": result.started_at,
        "finished_at": result.finished_at,
        "duration_s": duration_s(result.started_at, result.finished_at),
        "has_samples": bool(result.samples_path),
    }


def version_item(
    record: VersionRecord,
    *,
    stable: int | None,
    pins: Iterable[PinRecord],
    jobs: Sequence[str],
    scores: Mapping[str, float],
) -> dict[str, Any]:
    """An item of /versions."""
    item = {name: value for name, value in asdict(record).items() if name != "run_id"}
    return {
        **item,
        "state": record.state.value,
        "is_stable": record.policy_version == stable,
        "pins": [{"owner": pin.owner, "kind": pin.kind.value} for pin in pins],
        "jobs": list(jobs),
        "scores": dict(scores),
    }


def refused_item(record: DiscardRecord) -> dict[str, Any]:
    """An item of /versions for a sync that was refused before it got a number."""
    return {
        "policy_version": None,
        "incarnation": None,
        "weight_version": record.weight_version,
        "rollout_id": record.rollout_id,
        "train_step": record.train_step,
        "state": VersionState.DISCARDED.value,
        "reason": record.reason,
        "detail": record.detail,
        "num_tensors": 0,
        "num_bytes": 0,
        "digest": "",
        "same_as": None,
        "began_at": record.ended_at,
        "sealed_at": None,
        "ended_at": record.ended_at,
        "held_s": record.held_s,
        "is_stable": False,
        "pins": [],
        "jobs": [],
        "scores": {},
    }


def engine_item(name: str, now: EngineNow, *, url: str | None, device: str, launched: bool) -> dict[str, Any]:
    """An item of /engines."""
    return {
        "name": name,
        "state": now.state,
        "since": now.since,
        "detail": now.detail,
        "target": now.target,
        "url": url,
        "device": device,
        "launched": launched,
        "num_restarts": now.num_restarts,
    }


def sync_span(record: VersionRecord) -> dict[str, Any]:
    """A sync in the lane."""
    receiving = record.state is VersionState.RECEIVING
    discarded = record.state is VersionState.DISCARDED
    return {
        "policy_version": record.policy_version,
        "weight_version": record.weight_version,
        "begin": record.began_at,
        "end": None if receiving else record.ended_at if discarded else record.sealed_at,
        "outcome": None if receiving else "discarded" if discarded else "sealed",
        "reason": record.reason if discarded else "",
    }


def engine_spans(names: Iterable[str], spans: Sequence[Span]) -> list[dict[str, Any]]:
    """The engines' spans in the lane."""
    known = list(dict.fromkeys([*names, *(span.engine for span in spans)]))
    return [
        {
            "name": name,
            "spans": [
                {key: value for key, value in asdict(span).items() if key != "engine"}
                for span in spans
                if span.engine == name
            ],
        }
        for name in known
    ]


def attempt_span(attempt: Attempt) -> dict[str, Any]:
    """An attempt of a job in the lane."""
    job = attempt.job
    last = attempt.number == job.attempt
    return {
        "job_id": job.job_id,
        "target": job.target.key,
        "dataset": job.dataset,
        "attempt": attempt.number,
        "requested": job.requested_at,
        "begin": attempt.began_at,
        "end": attempt.ended_at,
        "status": job.status.value if last else attempt.outcome,
        "reason": job.reason if last else attempt.outcome,
    }
