"""What a job is, how far it is, and how it ended.

Values only. A score exists only in an outcome that succeeded: what an unfinished or failed
job had scored is kept apart as `partial`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from live_eval.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from live_eval.evaluation.comparison import PromptScores
    from live_eval.evaluation.set_config import EvalSetConfig
    from live_eval.reasons import EndReason, JobStatus
    from live_eval.targets import Target


LATE_S = 90.0
"""Between the end of a run by its own time limit and the end of its proof and its files."""
_LONGEST_NAME = 180


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSpec:
    """One attempt at one target on one dataset."""

    job_id: str
    target: Target
    label: str
    """The weight label that every answer must carry."""
    samples_path: Path
    """File of this attempt's samples; its folder is made, what an interrupted run left there is replaced."""
    attempt: int = 1
    earlier: tuple[Path, ...] = ()
    """Sample files of the attempts before, oldest first; they need not be there."""
    weights: str = ""
    """Names the content of the target's files: a sample that was made with the same is taken up. Empty
    where nobody can say; then everything is asked anew."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLimits:
    """Bounds of one run."""

    timeout_s: float | None = None
    """The whole job's deadline, grading included; None waits for as long as it takes."""
    chunk_size: int = 32
    """At most so many samples a generate call; fewer where that fills all calls."""
    num_in_flight: int = 2
    """Generate calls at a time: twice the number of engines keeps them busy."""
    max_engine_retries: int = 2
    """How often a sample that an engine lost is asked again before the job fails."""
    abort_timeout_s: float = 5.0
    """For SampleSource.abort()."""
    grace_s: float = 2.0
    """After an abort: for answers on their way and rewards being computed."""

    def __post_init__(self) -> None:
        if self.chunk_size < 1 or self.num_in_flight < 1 or self.max_engine_retries < 0:
            raise ConfigError(
                f"chunk_size {self.chunk_size}, num_in_flight {self.num_in_flight}, max_engine_retries "
                f"{self.max_engine_retries}: the first two must be 1 or more, the last 0 or more"
            )


def limits_of(config: EvalSetConfig, limits: RunLimits) -> RunLimits:
    """The service's limits under the dataset's own.

    A dataset with an early stop is asked sample by sample, since a call of many answers only when the
    last of them is there.
    """
    in_flight = config.concurrency or limits.chunk_size * limits.num_in_flight
    chunk = 1 if config.early_stop_remaining is not None else min(limits.chunk_size, in_flight)
    if config.concurrency is None and chunk == limits.chunk_size:
        num_calls = limits.num_in_flight
    else:
        num_calls = max(1, in_flight // chunk)
    timeout_s = limits.timeout_s if config.timeout_s is None else config.timeout_s
    return replace(limits, chunk_size=chunk, num_in_flight=num_calls, timeout_s=timeout_s)


def job_timeout_of(config: EvalSetConfig, limits: RunLimits) -> float | None:
    """After how long whoever supervises a job of this dataset gives it up; None: as for every job.

    Where the run itself ends at its time limit, and may have enough for a score, it gets the time for that.
    """
    if config.timeout_s is None and config.min_samples is None:
        return None
    timeout_s = limits_of(config, limits).timeout_s
    return None if timeout_s is None else timeout_s + limits.abort_timeout_s + limits.grace_s + LATE_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far a job is."""

    num_done: int
    """Samples that are scored or errored."""
    num_expected: int
    mean: float | None
    """Mean reward over the samples scored so far; None before the first."""
    low: float | None = field(default=None, compare=False)
    high: float | None = field(default=None, compare=False)
    """The mean's 95 % interval, where one can be given."""
    num_scored: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleCounts:
    """Every expected sample is in exactly one of scored, errored, aborted."""

    n_expected: int
    n_scored: int
    n_errored: int
    n_aborted: int

    @property
    def coverage(self) -> float | None:
        """Share of the expected samples that have a score; None if none was expected."""
        return self.n_scored / self.n_expected if self.n_expected else None


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOutcomeDetail:
    """How a job ended and what it measured."""

    job_id: str
    status: JobStatus
    """succeeded, failed, timed_out or cancelled."""
    reason: EndReason
    detail: str = ""
    """For people: what happened, with the first error where there is one."""
    counts: SampleCounts
    score: float | None = None
    """Mean reward over the scored samples; None unless the job succeeded."""
    metrics: dict[str, float] = field(default_factory=dict)
    """All metrics that have data, `score` among them; empty unless the job succeeded."""
    partial: dict[str, float] = field(default_factory=dict)
    """The same of a job that did not succeed, over what it had scored. Not this target's score; empty
    where the weights themselves are in doubt."""
    withheld: bool = False
    """Whether everything ran, but too few samples could be scored for a score to be given."""
    engine_labels: tuple[str, ...] = ()
    """Distinct weight labels on the answers, sorted."""
    num_engine_retries: int = 0
    """How often the engines were pinned again in the middle of this job."""
    num_taken_up: int = 0
    """Samples of earlier attempts that were not asked again."""
    source_aborted: bool = False
    """Whether the source was told to abort: it answers nothing more before its target is pinned again."""
    samples_path: str = ""
    prompt_scores: PromptScores = field(default_factory=dict, repr=False)
    """What was scored, by prompt, for comparisons with other versions; empty unless the job succeeded."""
    pass_threshold: float = 1.0
    started_at: float = 0.0
    """Seconds since the epoch."""
    finished_at: float = 0.0


def sample_file(job_id: str, *, attempt: int = 1) -> str:
    """Relative path of a job's sample file: `v7/rev.jsonl`, from the second attempt `v7/rev@2.jsonl`.

    Distinct for distinct jobs and attempts, whatever characters the dataset's name has.
    """
    key, _, dataset = job_id.partition("/")
    suffix = "" if attempt == 1 else f"@{attempt}"
    name = quote(dataset, safe="")
    if len(name) > _LONGEST_NAME:  # some characters become twelve, and a file's name has 255 at most
        digest = hashlib.sha256(dataset.encode()).hexdigest()[:16]
        name = f"{name[:_LONGEST_NAME]}%{digest}"
    return f"{quote(key, safe='')}/{name}{suffix}.jsonl"
