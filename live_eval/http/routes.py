"""The API's paths and parameters, as FastAPI describes them.

Each answers from the Source in a thread, or asks the service in its loop; nothing else is decided here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from starlette.concurrency import run_in_threadpool

from live_eval.errors import AlreadyEnded, CorruptVersion, LiveEvalError
from live_eval.http import bodies, gauges, models
from live_eval.http.errors import ApiError, told
from live_eval.http.events import EventStream
from live_eval.http.guard import COOKIE, wrong_token
from live_eval.http.samples import compare_page, sample_page
from live_eval.http.views import attempt_span, engine_item, engine_spans, sync_span
from live_eval.results.pages import Filter
from live_eval.store.checkpoint import check_complete

if TYPE_CHECKING:
    from live_eval.http.activity import Activity
    from live_eval.http.events import EventLog
    from live_eval.http.guard import Token
    from live_eval.http.source import Source

MAX_SPANS = 2000
LANE_S = 3600.0
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": bodies.ErrorAnswer, "description": "It is not carried out, and why."},
    "5XX": {"model": bodies.ErrorAnswer, "description": "Not now, or a fault of live-eval."},
}

Offset = Annotated[int, Query(ge=0, le=models.MAX_INT)]
Limit = Annotated[int, Query(ge=1, le=500)]
SampleLimit = Annotated[int, Query(ge=1, le=200)]
Number = Annotated[int | None, Query(ge=0, le=models.MAX_INT)]
Name = Annotated[str | None, Query(max_length=200)]
Statuses = Annotated[list[models.JobStatusName], Query()]
When = Annotated[float | None, Query(ge=0, le=1e12, allow_inf_nan=False)]
JobId = Annotated[str, Query(min_length=1, max_length=400)]


def reading(source: Source) -> APIRouter:
    """Lists and single things out of the ledger, the catalogue and sample files."""
    router = APIRouter(prefix="/api/v1", responses=ERRORS)

    @router.get("/versions", response_model=bodies.Versions)
    def versions(
        state: Literal["receiving", "sealed", "collected", "discarded"] | None = None,
        offset: Offset = 0,
        limit: Limit = 50,
    ) -> Any:
        """Policy versions and discarded syncs, newest first."""
        total, items = source.versions(state, offset=offset, limit=limit)
        return {"total": total, "offset": offset, "limit": limit, "items": items}

    @router.get("/versions/{number}", response_model=models.Version)
    def version(number: Annotated[int, Path(ge=0, le=models.MAX_INT)]) -> Any:
        """One policy version."""
        return source.version_items([source.store.get(number)])[0]

    @router.get("/datasets", response_model=bodies.Datasets)
    def datasets() -> Any:
        """What each configured dataset is."""
        return {"items": source.datasets()}

    _jobs(router, source)
    _samples(router, source)
    return router


def _jobs(router: APIRouter, source: Source) -> None:
    @router.get("/jobs", response_model=bodies.Jobs)
    def jobs(
        status: Statuses = [],  # noqa: B006 - FastAPI copies it
        dataset: Name = None,
        kind: models.Kind | None = None,
        policy_version: Number = None,
        offset: Offset = 0,
        limit: Limit = 50,
    ) -> Any:
        """Jobs, newest first."""
        which = Filter(statuses=tuple(status), dataset=dataset, kind=kind, policy_version=policy_version)
        total, items = source.jobs(which, offset=offset, limit=limit)
        return {"total": total, "offset": offset, "limit": limit, "items": items}

    @router.get("/jobs/{job_id:path}", response_model=models.JobDetails)
    def job(job_id: Annotated[str, Path(max_length=400)]) -> Any:
        """One job with its attempts, transitions and result."""
        return source.job(job_id)

    @router.get("/results", response_model=bodies.Results)
    def results(
        status: Statuses = [],  # noqa: B006 - as above
        dataset: Name = None,
        kind: models.Kind | None = None,
        policy_version: Number = None,
        offset: Offset = 0,
        limit: Limit = 50,
    ) -> Any:
        """How jobs ended, in the order in which that became durable."""
        which = Filter(statuses=tuple(status), dataset=dataset, kind=kind, policy_version=policy_version)
        total, items = source.results(which, offset=offset, limit=limit)
        return {"total": total, "offset": offset, "limit": limit, "items": items}


def _samples(router: APIRouter, source: Source) -> None:
    @router.get("/samples", response_model=bodies.Samples)
    def samples(
        job_id: JobId,
        status: Literal["scored", "errored", "aborted"] | None = None,
        row_id: Annotated[str | None, Query(max_length=1000)] = None,
        offset: Offset = 0,
        limit: SampleLimit = 50,
    ) -> Any:
        """Samples of a job, also while it runs."""
        row, index = source.sample_index(job_id)
        total, items = sample_page(index, status=status, row_id=row_id, offset=offset, limit=limit)
        running = not row.status.terminal
        page = {"total": total, "offset": offset, "limit": limit, "items": items}
        return {**page, "job_id": job_id, "attempt": row.attempt, "running": running}

    @router.get("/compare", response_model=bodies.Comparison)
    def compare(
        left: JobId,
        right: JobId,
        change: models.ChangeName | None = None,
        offset: Offset = 0,
        limit: SampleLimit = 50,
    ) -> Any:
        """Samples of two jobs of one dataset, side by side."""
        (one, ours), (other, theirs) = source.sample_index(left), source.sample_index(right)
        if one.dataset != other.dataset:
            raise ApiError(
                422,
                "bad_value",
                f"{left} is of dataset {one.dataset}, {right} of {other.dataset}",
                value={"where": "right", "given": right},
                what_to_do="compare jobs of one dataset",
            )
        page = compare_page(ours, theirs, change=change, offset=offset, limit=limit)
        shown = {"left": left, "right": right, "dataset": one.dataset}
        return {**page, **shown, "offset": offset, "limit": limit}


def watching(source: Source, events: EventLog, activity: Activity) -> APIRouter:
    """What the service is at now."""
    router = APIRouter(responses=ERRORS)
    service = source.service

    @router.get("/api/v1/status", response_model=models.Status)
    async def status() -> Any:
        """What the service is doing."""
        return await full_status(source, events)

    @router.get("/api/v1/engines", response_model=bodies.Engines)
    async def engines() -> Any:
        """Eval engines and their states."""
        return {"items": engine_items(source, activity)}

    @router.get("/api/v1/lane", response_model=models.Lane)
    async def lane(since: When = None, until: When = None) -> Any:
        """Syncs, loads and evals by engine, with begin and end."""
        now = time.time()
        end = now if until is None else until
        begin = now - LANE_S if since is None else since
        spans = activity.spans(begin, end)
        rest = await run_in_threadpool(_lane, source, begin, end)
        names = [item["name"] for item in engine_items(source, activity)]
        return {
            "now": now,
            "since": begin,
            "until": end,
            **rest,
            "cut": rest["cut"] or len(spans) > MAX_SPANS,
            "engines": engine_spans(names, spans[-MAX_SPANS:]),
        }

    @router.get("/healthz", response_model=bodies.Health)
    async def healthz() -> Any:
        """200 while the process serves, whatever it serves."""
        return {"state": service.status().state}

    _telling(router, source, events)
    return router


def _telling(router: APIRouter, source: Source, events: EventLog) -> None:
    @router.get(
        "/api/v1/events",
        response_class=Response,
        responses={200: {"content": {"text/event-stream": {}}, "description": "What happens, as it does."}},
    )
    async def follow(
        last_event_id: Annotated[str | None, Query(max_length=100)] = None,
        header: Annotated[str | None, Header(alias="last-event-id", max_length=100)] = None,
    ) -> Response:
        """Server-sent events, from behind Last-Event-ID where it is given."""
        return EventStream(events, header or last_event_id)

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "Prometheus text."}},
    )
    async def metrics() -> Response:
        """Prometheus."""
        text = await run_in_threadpool(
            gauges.render, source, await full_status(source, events), events.num_clients
        )
        return Response(text, headers={"content-type": gauges.CONTENT_TYPE})


def changing(source: Source, token: Token) -> APIRouter:
    """What changes something."""
    router = APIRouter(prefix="/api/v1", responses=ERRORS)
    service = source.service

    @router.post("/checkpoints", response_model=bodies.Accepted, status_code=201)
    async def submit(body: bodies.Submission) -> Any:
        """Evaluate a checkpoint."""
        _check_takes_work(service.status().state)
        path = await run_in_threadpool(source.allowed_path, body.path)
        try:
            await run_in_threadpool(check_complete, path)
        except CorruptVersion as error:
            raise told(error, value=body.path) from error
        _check_takes_work(service.status().state)
        job_ids = service.submit(path, body.datasets, body.priority)
        return {"job_ids": list(job_ids), "target": job_ids[0].partition("/")[0]}

    @router.post("/cancel", response_model=bodies.Cancelled, status_code=202)
    async def cancel(body: bodies.Cancel) -> Any:
        """Cancel a job."""
        if service.status().state == "starting":
            _check_takes_work("starting")
        try:
            status = service.cancel(body.job_id)
        except AlreadyEnded as error:
            row = await run_in_threadpool(source.ledger.job, body.job_id)
            raise told(error, value=row.status.value) from error
        except LiveEvalError as error:
            raise told(error, value=body.job_id) from error
        return {"job_id": body.job_id, "status": status.value}

    @router.post("/login", status_code=204, response_class=Response)
    async def login(body: bodies.Login) -> Response:
        """A cookie for the page, in return for the token."""
        if not token.is_right(body.token):
            raise wrong_token()
        answer = Response(status_code=204)
        answer.set_cookie(COOKIE, token.cookie, httponly=True, samesite="strict", path="/")
        return answer

    return router


async def full_status(source: Source, events: EventLog) -> dict[str, Any]:
    """The whole of /status; call it in the service's loop."""
    said = source.service.status()
    return await run_in_threadpool(source.status, said, last_event_id=events.last_id)


def engine_items(source: Source, activity: Activity) -> list[dict[str, Any]]:
    """Items of /engines; call it in the service's loop."""
    there = {engine.name: engine for engine in source.service.engines()}
    items = []
    for name, now in activity.engines.items():
        engine = there.get(name)
        url = None
        if engine is not None:
            url = engine.spec.url or (engine.process.url if engine.process is not None else None)
        items.append(
            engine_item(
                name,
                now,
                url=url,
                device=engine.spec.device if engine else source.service.config.engines.device,
                launched=engine is None or engine.spec.url is None,
            )
        )
    return items


def _lane(source: Source, since: float, until: float) -> dict[str, Any]:
    cut, attempts = source.ledger.attempts_between(since, until, limit=MAX_SPANS)
    syncs = [sync_span(record) for record in source.store.records() if record.began_at <= until]
    syncs = [span for span in syncs if span["end"] is None or span["end"] >= since]
    return {
        "cut": cut or len(syncs) > MAX_SPANS,
        "syncs": syncs[-MAX_SPANS:],
        "jobs": [attempt_span(attempt) for attempt in attempts],
    }


def _check_takes_work(state: str) -> None:
    if state == "starting":
        raise ApiError(
            503,
            "starting",
            "the engines are still starting",
            what_to_do="ask again in some seconds",
            headers={"retry-after": "5"},
        )
    if state == "finished":
        raise ApiError(
            409,
            "finished",
            "the service takes no more work",
            what_to_do="start a service, or use another one",
        )
