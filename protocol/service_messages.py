"""The service: what drivers, receivers and command lines ask of it, and what it tells them."""

from __future__ import annotations

from typing import Literal

import msgspec

from protocol.message import Message


class StoreChanged(Message, frozen=True, kw_only=True):
    """Receiver: a version was sealed or discarded; the catalogue says which. One way."""


class TrainingEnded(Message, frozen=True, kw_only=True):
    """Driver: no more syncs will come; drain. Answered by Ok."""


class SubmitCheckpoint(Message, frozen=True, kw_only=True):
    """Anyone: evaluate this checkpoint. Answered by JobsAccepted or ErrorReply."""

    path: str
    datasets: tuple[str, ...] = ()
    """Names of configured datasets; empty means all."""
    priority: int = 0
    """Of the checkpoints that wait the highest runs first."""


class JobsAccepted(Message, frozen=True, kw_only=True):
    """Service: these jobs were made."""

    job_ids: tuple[str, ...]


class CancelJob(Message, frozen=True, kw_only=True):
    """Anyone: this job is wanted no more. Answered by Ok when it was told, before it has ended."""

    job_id: str


class StatusRequest(Message, frozen=True, kw_only=True):
    """Anyone: how is the service? Answered by ServiceStatus."""


class Subscribe(Message, frozen=True, kw_only=True):
    """Anyone: send JobEvent and EngineEvent messages on this connection. Answered by Ok, then them."""


class JobEvent(Message, frozen=True, kw_only=True):
    """Service: a job changed or made progress. Terminal ones are durable before they are sent."""

    job_id: str
    dataset: str
    status: str
    policy_version: int | None = None
    checkpoint: str = ""
    reason: str = ""
    num_done: int = 0
    num_expected: int = 0
    score: float | None = None
    """Of a running job: what the samples scored so far say."""
    score_low: float | None = None
    score_high: float | None = None
    """Its 95 % interval, where one can be given."""
    num_scored: int = 0


class EngineEvent(Message, frozen=True, kw_only=True):
    """Service: an engine changed its state."""

    engine: str
    state: str
    detail: str = ""


class ServiceStatus(Message, frozen=True, kw_only=True):
    """Service: what it is doing now."""

    state: Literal["starting", "serving", "draining", "finished"]
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    stable_version: int | None = None
    num_finished: int = 0
    engines: dict[str, str] = msgspec.field(default_factory=dict)


class JobResult(Message, frozen=True, kw_only=True):
    """Service: a finished job as sinks and other programs see it; `result_id` makes repeats harmless."""

    result_id: str
    job_id: str
    dataset: str
    status: str
    reason: str = ""
    detail: str = ""
    """For people: what happened, with the first error where there is one."""
    policy_version: int | None = None
    checkpoint: str = ""
    train_step: int | None = None
    rollout_id: int | None = None
    weight_digest: str = ""
    score: float | None = None
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    partial: dict[str, float] = msgspec.field(default_factory=dict)
    """What a job that did not succeed had measured so far; never the target's score."""
    n_expected: int = 0
    n_scored: int = 0
    n_errored: int = 0
    n_aborted: int = 0
    engine_versions: tuple[str, ...] = ()
    """Distinct weight labels that the engines put on the samples."""
    requested_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    samples_path: str = ""
