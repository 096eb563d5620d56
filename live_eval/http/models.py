"""The shapes of questions and answers, for the OpenAPI document and to check them against it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

JobStatusName = Literal[
    "waiting", "running", "succeeded", "failed", "timed_out", "cancelled", "superseded", "dropped"
]
Kind = Literal["live", "checkpoint"]
Time = Annotated[float, Field(description="Seconds since the epoch.")]
MAX_INT = 2**53


class Interval(BaseModel):
    """Where a figure lies with this probability."""

    low: float
    high: float
    level: float
    method: str


class Metric(BaseModel):
    """A figure, and how sure it is."""

    value: float
    interval: Interval | None


class Estimate(BaseModel):
    """What the samples scored so far say of a running job; not its score."""

    score: float | None
    low: float | None
    high: float | None
    num_scored: int


class StoreState(BaseModel):
    """The version store."""

    used_bytes: int
    max_bytes: int
    num_sealed: int
    num_pins: int


class Status(BaseModel):
    """What the service is doing."""

    run_id: str
    live_eval_version: str
    started_at: Time
    now: Time
    state: Literal["starting", "serving", "draining", "finished"]
    stable_version: int | None
    stable_at: float | None
    stable_age_s: float | None
    scored_version: int | None
    lag_versions: int | None
    lag_s: float | None
    running: list[str]
    waiting: list[str]
    queue_depth: int
    totals: dict[str, int]
    discarded: dict[str, int]
    on_update: Literal["finish", "cancel", "queue"]
    interval: int | None
    datasets: list[str]
    engines: dict[str, str]
    store: StoreState
    held_s: float | None
    sinks: dict[str, int]
    checkpoint_roots: list[str]
    needs_token: bool
    last_event_id: str


class Pin(BaseModel):
    """A claim on a version."""

    owner: str
    kind: str


class Version(BaseModel):
    """A policy version, or a sync that never became one."""

    policy_version: int | None
    incarnation: int | None
    weight_version: int
    rollout_id: int | None
    train_step: int | None
    state: Literal["receiving", "sealed", "collected", "discarded"]
    reason: str
    detail: str
    num_tensors: int
    num_bytes: int
    digest: str
    same_as: int | None
    began_at: Time
    sealed_at: float | None
    ended_at: float | None
    held_s: float | None
    is_stable: bool
    pins: list[Pin]
    jobs: list[str]
    scores: dict[str, float]


class Job(BaseModel):
    """One target on one dataset."""

    job_id: str
    dataset: str
    kind: Kind
    target: str
    policy_version: int | None
    checkpoint: str | None
    checkpoint_name: str | None
    train_step: int | None
    rollout_id: int | None
    status: JobStatusName
    reason: str
    detail: str
    priority: int
    protected: bool
    attempt: int
    requested_at: Time
    started_at: float | None
    finished_at: float | None
    duration_s: float | None
    num_done: int
    num_expected: int
    estimate: Estimate | None
    score: float | None
    interval: Interval | None


class Transition(BaseModel):
    """One change of a job's state."""

    from_status: str
    to_status: str
    attempt: int
    reason: str
    at: Time


class JobAttempt(BaseModel):
    """One stretch of a job's running."""

    attempt: int
    began_at: Time
    ended_at: float | None
    outcome: str


class Result(BaseModel):
    """How a job ended."""

    result_id: str
    job_id: str
    dataset: str
    kind: Kind
    target: str
    status: JobStatusName
    reason: str
    detail: str
    policy_version: int | None
    checkpoint: str | None
    train_step: int | None
    rollout_id: int | None
    weight_digest: str
    score: float | None
    interval: Interval | None
    metrics: dict[str, Metric]
    partial: dict[str, Metric]
    n_expected: int
    n_scored: int
    n_errored: int
    n_aborted: int
    engine_versions: list[str]
    attempt: int
    requested_at: Time
    started_at: float | None
    finished_at: float | None
    duration_s: float | None
    has_samples: bool


class JobDetails(Job):
    """A job with all that happened to it."""

    transitions: list[Transition]
    attempts: list[JobAttempt]
    result: Result | None


class Dataset(BaseModel):
    """What an eval set is now."""

    name: str
    num_rows: int
    num_expected: int
    n: int
    file_sha256: str
    since: Time
    settings: dict[str, Any]


class Sample(BaseModel):
    """One answer and what it was worth."""

    row_id: str
    sample: int
    status: Literal["scored", "errored", "aborted"]
    prompt: str | None
    label: Any = None
    response: str | None
    reward: float | None
    rewards: dict[str, float]
    error: str
    finish_reason: str
    num_tokens: int
    engine: str
    engine_label: str
    attempt: int
    cut: list[str]


ChangeName = Literal["better", "worse", "same", "unpaired"]


class EngineFacts(BaseModel):
    """One eval engine."""

    name: str
    state: Literal["starting", "ready", "pinned", "quarantined", "dead"]
    since: Time
    detail: str
    target: str | None
    url: str | None
    device: str
    launched: bool
    num_restarts: int


class SyncSpan(BaseModel):
    """A sync's time."""

    policy_version: int
    weight_version: int
    begin: Time
    end: float | None
    outcome: Literal["sealed", "discarded"] | None
    reason: str


class EngineSpan(BaseModel):
    """What an engine was at."""

    kind: Literal["load", "eval", "down"]
    target: str | None
    begin: Time
    end: float | None
    outcome: str
    detail: str


class EngineLane(BaseModel):
    """One engine's time."""

    name: str
    spans: list[EngineSpan]


class JobSpan(BaseModel):
    """An attempt's time."""

    job_id: str
    target: str
    dataset: str
    attempt: int
    requested: Time
    begin: float | None
    end: float | None
    status: str
    reason: str


class Lane(BaseModel):
    """What happened when."""

    now: Time
    since: Time
    until: Time
    cut: bool
    syncs: list[SyncSpan]
    engines: list[EngineLane]
    jobs: list[JobSpan]
