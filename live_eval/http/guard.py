"""Who may ask: the first thing that every request meets.

Knows the token, the Host and Origin rules and the bound on bodies; knows no routes but which of them
are free of the token. Invariant: nothing behind it sees a request of a foreign page, of someone
without the token, or with a body that is not small JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from live_eval.config import is_loopback
from live_eval.http.errors import ApiError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 64 << 10
BODY_TIMEOUT_S = 10.0
COOKIE = "live_eval"
GUARDED = ("/api/", "/metrics", "/openapi.json")
"""Everything else is the page's files and /healthz."""
LOGIN = "/api/v1/login"
_SAFE = ("GET", "HEAD", "OPTIONS")

HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}
"""On every answer."""


class Token:
    """The secret, compared in constant time."""

    def __init__(self, token: str | None) -> None:
        self._digest = None if token is None else hashlib.sha256(token.encode()).digest()
        key = (token or "").encode()
        self.cookie = hmac.new(key, b"live-eval cookie 1", hashlib.sha256).hexdigest()
        """What the page's cookie holds: it proves the token, and is not the token."""

    @property
    def needed(self) -> bool:
        """Whether there is one."""
        return self._digest is not None

    def is_right(self, given: str) -> bool:
        """Whether this is the token."""
        found = hashlib.sha256(given.encode("utf-8", "replace")).digest()
        return self._digest is None or hmac.compare_digest(found, self._digest)

    def is_right_cookie(self, given: str) -> bool:
        """Whether this is the cookie that the token was exchanged for."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.cookie.encode())


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, *, token: Token) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            _check_site(scope["path"], headers)
            self._check_token(scope["path"], headers)
            if scope["method"] not in _SAFE:
                _check_change(scope["method"], headers)
                receive = _replay(await _body(headers, receive), receive)
        except ApiError as error:
            answer = JSONResponse(
                error.body(), status_code=error.status, headers={**HEADERS, **error.headers}
            )
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, _with_headers(send))

    def _check_host(self, headers: Headers) -> None:
        host = headers.get("host", "")
        if not self._token.needed and not is_loopback(_host_name(host)):
            raise ApiError(
                403,
                "foreign_host",
                "without a token only loopback names are answered",
                value=host,
                what_to_do="ask for 127.0.0.1 or localhost, or start the service with a token",
            )

    def _check_token(self, path: str, headers: Headers) -> None:
        if not self._token.needed or path == LOGIN or not path.startswith(GUARDED):
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and given:
            if self._token.is_right(given.strip()):
                return
            raise wrong_token()
        cookie = _cookie(headers)
        if cookie and self._token.is_right_cookie(cookie):
            return
        raise ApiError(
            401,
            "no_token",
            "this service needs a token",
            what_to_do="send `Authorization: Bearer TOKEN`, or POST it to /api/v1/login for a cookie",
            headers={"www-authenticate": "Bearer"},
        )


def _check_site(path: str, headers: Headers) -> None:
    """A foreign page could not read the answer, but it could take the places of those who may."""
    if path.startswith(GUARDED) and headers.get("sec-fetch-site") == "cross-site":
        raise ApiError(
            403,
            "foreign_origin",
            "a page of another site may not ask",
            value=headers.get("origin"),
            what_to_do="open the service's own page",
        )


def wrong_token() -> ApiError:
    """What is given is not the token."""
    return ApiError(
        401,
        "wrong_token",
        "this is not the service's token",
        what_to_do="give the token that the service was started with",
        headers={"www-authenticate": "Bearer"},
    )


def _check_change(method: str, headers: Headers) -> None:
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    if (origin is not None and urlsplit(origin).netloc != headers.get("host", "")) or site not in (
        "same-origin",
        "none",
    ):
        raise ApiError(
            403,
            "foreign_origin",
            "a page of another origin may not change anything here",
            value=origin if origin is not None else site,
            what_to_do="use the service's own page, or a client that is no browser",
        )
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and kind != "application/json":  # no route takes another method
        raise ApiError(
            415,
            "not_json",
            "the content type must be application/json",
            value=headers.get("content-type"),
            what_to_do="send `Content-Type: application/json`",
        )


async def _body(headers: Headers, receive: Receive) -> bytes:
    """The whole body, which must be small and come soon."""
    data = bytearray()
    if headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")) > MAX_BODY:
        raise _too_large()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                data += message.get("body", b"")
                if len(data) > MAX_BODY:
                    raise _too_large()
                if not message.get("more_body", False):
                    return bytes(data)
    except TimeoutError as error:
        raise ApiError(
            400,
            "bad_json",
            f"the body was not there after {BODY_TIMEOUT_S:g} s",
            what_to_do="send it at once",
        ) from error


def _too_large() -> ApiError:
    return ApiError(
        413,
        "too_large",
        f"the body has more than {MAX_BODY} bytes",
        what_to_do="send a smaller one",
        headers={"connection": "close"},
    )


def _replay(body: bytes, receive: Receive) -> Receive:
    told = False

    async def replayed() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _with_headers(send: Send) -> Send:
    extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sent


def _host_name(host: str) -> str:
    """The Host header without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _cookie(headers: Headers) -> str:
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(headers.get("cookie", ""))
    except CookieError:
        return ""
    morsel = cookies.get(COOKIE)
    return "" if morsel is None else morsel.value
