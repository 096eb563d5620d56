"""The whole ASGI application: guard, API, page; and every error as the API tells it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles

from live_eval.errors import LiveEvalError
from live_eval.http.errors import ApiError, told
from live_eval.http.guard import GUARDED, Guard, Token
from live_eval.http.routes import changing, reading, watching
from live_eval.http.source import installed_version

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from live_eval.http.activity import Activity
    from live_eval.http.events import EventLog
    from live_eval.http.source import Source

logger = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"
_API = (*GUARDED, "/healthz")


class Application:
    """Guard in front; behind it the API, and the page's files for every other path."""

    def __init__(self, source: Source, events: EventLog, activity: Activity, *, token: str | None) -> None:
        secret = Token(token)
        self.api = _api(source, events, activity, secret)
        self._page = _Page(directory=PAGE, html=True, check_dir=False)
        self._guarded = Guard(self._split, token=secret)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        await self._guarded(scope, receive, send)

    async def _split(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self.api if scope["path"].startswith(_API) else self._page
        await app(scope, receive, send)


class _Page(StaticFiles):
    """The page's files; what is not there is told as the API does."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, always asked for anew: it may be of another version of live-eval."""
        try:
            if "\0" in path:
                raise HTTPException(404)
            answer = await super().get_response(path, scope)
        except HTTPException as error:
            return _answer(_of_http(error, scope["path"]))
        answer.headers["cache-control"] = "no-cache"
        return answer


def _api(source: Source, events: EventLog, activity: Activity, token: Token) -> FastAPI:
    api = FastAPI(
        title="live-eval",
        version=installed_version(),
        description="Background evaluation of RL policies: every score by policy version.",
        docs_url=None,
        redoc_url=None,
    )
    for router in (reading(source), watching(source, events, activity), changing(source, token)):
        api.include_router(router)

    async def known(request: Request, error: Exception) -> Response:
        assert isinstance(error, LiveEvalError)
        given = request.path_params.get("job_id", request.query_params.get("job_id"))
        answer = told(error, value=given)
        if answer.status == 500:
            logger.error("%s %s: %s", request.method, request.url.path, error)
        return _answer(answer)

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _answer(_of_validation(error))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _answer(_of_http(error, request.url.path))

    async def fault(request: Request, error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return _answer(
            ApiError(
                500, "internal", f"a fault of live-eval: {type(error).__name__}", what_to_do="see the log"
            )
        )

    api.add_exception_handler(LiveEvalError, known)
    api.add_exception_handler(RequestValidationError, invalid)
    api.add_exception_handler(HTTPException, http)
    api.add_exception_handler(Exception, fault)
    return api


def _answer(error: ApiError) -> Response:
    return JSONResponse(error.body(), status_code=error.status, headers=error.headers)


def _of_validation(error: RequestValidationError) -> ApiError:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "")
        return ApiError(400, "bad_json", f"the body is no JSON: {reason}", what_to_do="send a JSON object")
    where = ".".join(str(part) for part in first["loc"])
    return ApiError(
        422,
        "bad_value",
        f"{where}: {first['msg']}",
        value={"where": where, "given": _given(first.get("input"))},
        what_to_do="docs/http_api.md and /openapi.json say what is taken",
    )


def _given(value: object) -> object:
    try:
        return json.dumps(value) if isinstance(value, dict | list) else value
    except (TypeError, ValueError):
        return repr(value)


def _of_http(error: HTTPException, path: str) -> ApiError:
    headers = dict(error.headers or {})
    if error.status_code == 405:
        return ApiError(
            405, "method_not_allowed", f"{path} does not take this method", value=path,
            what_to_do=f"use {headers.get('Allow', 'GET')}", headers=headers or {"Allow": "GET, HEAD"},
        )  # fmt: skip
    if error.status_code == 404:
        return ApiError(
            404, "no_such_route", f"there is nothing at {path}", value=path,
            what_to_do="/openapi.json lists what there is",
        )  # fmt: skip
    return ApiError(error.status_code, "bad_json", str(error.detail), what_to_do="see docs/http_api.md")
