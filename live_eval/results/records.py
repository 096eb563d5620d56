"""A result as one JSON object, for people and programs outside: exports, --json, results.jsonl.

Invariant: an object has every field of JobResult, always, so that columns never come and go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from live_eval.targets import CheckpointTarget, PolicyTarget
from protocol.messages import JobResult

if TYPE_CHECKING:
    from live_eval.results.rows import JobRow


def result_record(result: JobResult, *, attempt: int) -> dict[str, Any]:
    """All fields of the result, the interval of its score, its job's attempts, its duration in seconds."""
    record = msgspec.to_builtins(result)
    record["engine_versions"] = list(result.engine_versions)
    record["score_low"] = result.metrics.get("score/low")
    record["score_high"] = result.metrics.get("score/high")
    record["interval_method"] = interval_method(result.metrics)
    record["attempt"] = attempt
    record["duration_s"] = duration_s(result.started_at, result.finished_at)
    return record


def job_record(row: JobRow, result: JobResult | None) -> dict[str, Any]:
    """An object of the same fields for any job; one that has not ended has no score yet."""
    if result is not None:
        return result_record(result, attempt=row.attempt)
    target = row.target
    policy = target if isinstance(target, PolicyTarget) else None
    pending = JobResult(
        result_id="",
        job_id=row.job_id,
        dataset=row.dataset,
        status=row.status.value,
        reason=row.reason,
        policy_version=policy.policy_version if policy else None,
        checkpoint=target.path if isinstance(target, CheckpointTarget) else "",
        train_step=target.train_step,
        rollout_id=policy.rollout_id if policy else None,
        n_expected=row.num_expected,
        requested_at=row.requested_at,
        started_at=row.started_at,
    )
    return result_record(pending, attempt=row.attempt)


def interval_method(metrics: Mapping[str, float]) -> str:
    """How the interval of a score was made: `wilson`, `t`, or empty where there is none."""
    if "score/low" not in metrics:
        return ""
    return "wilson" if "score/n_eff" in metrics else "t"


def duration_s(started_at: float | None, finished_at: float | None) -> float | None:
    """Seconds from start to end, 0 if the clock was set back; None if it never started or has not ended."""
    if started_at is None or finished_at is None:
        return None
    return max(0.0, finished_at - started_at)
