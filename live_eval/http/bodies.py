"""What is asked and answered as a whole: lists, comparisons, errors, and the bodies of POSTs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from live_eval.http.models import (
    ChangeName,
    Dataset,
    EngineFacts,
    Interval,
    Job,
    JobStatusName,
    Result,
    Sample,
    Version,
)


class Problem(BaseModel):
    """What is wrong."""

    code: str
    what: str
    value: Any = None
    what_to_do: str


class ErrorAnswer(BaseModel):
    """Every answer of status 400 and up."""

    error: Problem


class Page(BaseModel):
    """A part of a list."""

    total: int
    offset: int
    limit: int


class Versions(Page):
    """Newest first."""

    items: list[Version]


class Jobs(Page):
    """Newest first."""

    items: list[Job]


class Results(Page):
    """In the order in which they became durable."""

    items: list[Result]


class Datasets(BaseModel):
    """All that are configured."""

    items: list[Dataset]


class Samples(Page):
    """By row, then sample."""

    job_id: str
    attempt: int
    running: bool
    items: list[Sample]


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


class Engines(BaseModel):
    """All of them."""

    items: list[EngineFacts]


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
