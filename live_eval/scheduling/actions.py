"""What the scheduler asks its shell to do. Actions of one answer are carried out in their order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from live_eval.reasons import EndReason, JobStatus
    from live_eval.targets import Target

NEWEST = "newest"
"""Owner of the pin on the newest version while it is not due: it is the last one if training ends now."""


class Trigger(StrEnum):
    """Why an evaluation was made."""

    FIRST_PUSH = "first_push"
    EVERY = "every"
    """No interval is set."""
    INTERVAL = "interval"
    UNNUMBERED = "unnumbered"
    """An interval is set, but the version carries no rollout id to count by."""
    ASKED = "asked"
    LAST = "last"
    """The newest version when training ended."""
    CHECKPOINT = "checkpoint"
    RESTORED = "restored"
    """A job that an unfinished evaluation lacked when the service was started again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewJob:
    """A job exists and waits. Record it before the actions after it."""

    job_id: str
    evaluation: str
    """Key of its evaluation, shared by the jobs of one target."""
    target: Target
    dataset: str
    trigger: Trigger
    due_rollout: int | None = None
    """For `interval`: the rollout id of the due point that this version serves, at or before its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """Keep this version in the store for `owner`, as waiting."""

    policy_version: int
    owner: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpin:
    """`owner` needs the version no more. Also sent for a version that the store has already dropped."""

    policy_version: int
    owner: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunJob:
    """One job of a RunEvaluation."""

    job_id: str
    evaluation: str
    target: Target
    dataset: str
    attempt: int
    """1, 2, ...; goes up with every run of the job, also across a restart of the service."""
    protected: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEvaluation:
    """Lease the engines, load the target, run these jobs, then report evaluation_ended with `run`.

    Sent only while nobody has engines, or beside others that, with this one, each have a part of them.
    """

    evaluation: str
    run: int
    """1, 2, ...; a retry of failed jobs is a new run of the evaluation."""
    target: Target
    jobs: tuple[RunJob, ...]
    protected: bool = False
    """Too many evaluations in a row were cancelled: this one is not cancelled for a newer version."""
    num_engines: int | None = None
    """So many engines; None: the whole group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelRunning:
    """Stop these jobs of a run, whether begun or not; the others of the run go on.

    Report each with job_finished, or all at once with evaluation_ended.
    """

    evaluation: str
    run: int
    job_ids: tuple[str, ...]
    reason: EndReason


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryJob:
    """The job's run failed or was cut; it waits for run number `attempt`. A RunEvaluation follows."""

    job_id: str
    evaluation: str
    attempt: int
    reason: EndReason


@dataclass(frozen=True, kw_only=True, slots=True)
class EndJob:
    """The job's one and only terminal state."""

    job_id: str
    evaluation: str
    status: JobStatus
    reason: EndReason
    attempt: int
    protected: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NotDue:
    """The interval rule passes this version over."""

    policy_version: int
    next_due_rollout: int | None = None
    """Rollout id of the next due point, where the version has a rollout id to count from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """Nothing is left and nothing more will come; the last action ever."""


Action = NewJob | Pin | Unpin | RunEvaluation | CancelRunning | RetryJob | EndJob | NotDue | Finished
