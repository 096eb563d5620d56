"""When a run ends before its last sample, and whether what it has is enough for a score.

Owns the rules of a dataset's time limit, `min_samples` and early stop. It watches a recorder and stops
nothing itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from live_eval.evaluation.ending import Ending
from live_eval.reasons import EndReason, JobStatus

if TYPE_CHECKING:
    from live_eval.evaluation.job import SampleCounts
    from live_eval.evaluation.recorder import Recorder
    from live_eval.evaluation.set_config import EvalSetConfig

_LOOK_S = 1.0
"""Longest time between two looks at a run that is not idle yet."""


async def until_idle(
    config: EvalSetConfig, recorder: Recorder, *, clock: Callable[[], float] = time.monotonic
) -> str:
    """Return, with the words for it, once the dataset's early stop applies; never without one."""
    remaining, idle_s = config.early_stop_remaining, config.early_stop_idle_s
    if remaining is None or idle_s is None:
        await asyncio.Event().wait()
        return ""
    while True:
        idle_for = clock() - recorder.last_at
        if 0 < recorder.num_open < remaining and idle_for >= idle_s:
            return f"{recorder.num_open} samples were left, and none was done for {idle_s:g} s"
        left = idle_s - idle_for if recorder.num_open < remaining else _LOOK_S
        await asyncio.sleep(min(max(left, 0.01), _LOOK_S))


def completed(config: EvalSetConfig, counts: SampleCounts, first_error: str) -> Ending:
    """How a run ends that asked for everything."""
    detail = _unscored(counts, first_error)
    if counts.coverage is None or counts.n_scored == 0:
        return _failed(EndReason.NO_DATA, detail or "the dataset has no rows")
    if config.min_samples is not None and counts.n_scored < config.min_samples:
        return _failed(EndReason.LOW_COVERAGE, f"{detail}; min_samples is {config.min_samples}")
    if counts.coverage < config.min_coverage:
        below = f"coverage {counts.coverage:.3f} is below min_coverage {config.min_coverage}"
        return _failed(EndReason.LOW_COVERAGE, f"{detail}; {below}")
    return Ending(status=JobStatus.SUCCEEDED, reason=EndReason.COMPLETED, detail=detail)


def ended_early(
    config: EvalSetConfig, counts: SampleCounts, first_error: str, *, early: Ending, timed_out: bool
) -> Ending:
    """How a run ends that its time limit or early stop cut short, and whose engines were checked."""
    detail = f"{early.detail}; {_unscored(counts, first_error)}"
    if config.min_samples is not None:
        enough = counts.n_scored >= config.min_samples
        detail += "" if enough else f"; min_samples is {config.min_samples}"
    else:
        enough = not timed_out and (counts.coverage or 0.0) >= config.min_coverage
        detail += "" if enough or timed_out else f"; min_coverage is {config.min_coverage}"
    if enough and counts.n_scored:
        return Ending(status=JobStatus.SUCCEEDED, reason=EndReason.EARLY_STOP, detail=detail)
    if timed_out:
        return Ending(status=JobStatus.TIMED_OUT, reason=EndReason.JOB_TIMEOUT, detail=detail)
    return _failed(EndReason.LOW_COVERAGE if counts.n_scored else EndReason.NO_DATA, detail)


def _failed(reason: EndReason, detail: str) -> Ending:
    return Ending(status=JobStatus.FAILED, reason=reason, detail=detail)


def _unscored(counts: SampleCounts, first_error: str) -> str:
    unscored = counts.n_expected - counts.n_scored
    detail = f"{unscored} of {counts.n_expected} samples have no score" if unscored else ""
    return f"{detail}; first error: {first_error}" if first_error else detail
