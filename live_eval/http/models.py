"""The shapes of questions and answers, for the OpenAPI document and to check them against it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

JobStatusName = Literal[
    "waiting", "running", "succeeded", "failed", "timed_out", "cancelled", "superseded", "dropped"
]
Kind = Literal["live", "checkpoint"]
Time = Annotated[float, Field(description="Seconds since the epoch.")]
MAX_INT = 2**53


class Problem(BaseModel):
    """What is wrong."""

    code: str
    what: str
    value: Any = None
    what_to_do: str


class ErrorAnswer(BaseModel):
    """Every answer of status 400 and up."""

    error: Problem


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


class Page(BaseModel):
    """A part of a list."""

    total: int
    offset: int
    limit: int


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
    is_stable: bool
    pins: list[Pin]
    jobs: list[str]
    scores: dict[str, float]


class Versions(Page):
    """Newest first."""

    items: list[Version]


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


class Jobs(Page):
    """Newest first."""

    items: list[Job]


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


class Results(Page):
    """In the order in which they became durable."""

    items: list[Result]


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


class Datasets(BaseModel):
    """All that are configured."""

    items: list[Dataset]


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


class Samples(Page):
    """By row, then sample."""

    job_id: str
    attempt: int
    running: bool
    items: list[Sample]


ChangeName = Literal["better", "worse", "same", "unpaired"]


class Pair(BaseModel):
    """One sample of two jobs."""

    row_id: str
    sample: int
    prompt: str | None
    label: Any = None
    change: ChangeName
    left: Sample | None
    right: Sample | None


class Summary(BaseModel):
    """What two jobs differ in."""

    paired: int
    better: int
    worse: int
    same: int
    unpaired: int
    difference: float | None
    interval: Interval | None


class Comparison(Page):
    """Two jobs of one dataset."""

    left: str
    right: str
    dataset: str
    summary: Summary
    items: list[Pair]


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


class Engines(BaseModel):
    """All of them."""

    items: list[EngineFacts]


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


class Question(BaseModel):
    """A body: what is not known is refused, so that a misspelt field is noticed."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Submission(Question):
    """A checkpoint to be evaluated."""

    path: Annotated[str, Field(min_length=1, max_length=4096)]
    datasets: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=1000)] = []
    priority: Annotated[int, Field(ge=-100, le=100)] = 0


class Accepted(BaseModel):
    """What was made of a submission."""

    job_ids: list[str]
    target: str


class Cancel(Question):
    """A job that is wanted no more."""

    job_id: Annotated[str, Field(min_length=1, max_length=400)]


class Cancelled(BaseModel):
    """What the job was when it was told."""

    job_id: str
    status: JobStatusName


class Login(Question):
    """The token, for a cookie."""

    token: Annotated[str, Field(max_length=4096)]


class Health(BaseModel):
    """The process serves."""

    state: Literal["starting", "serving", "draining", "finished"]
