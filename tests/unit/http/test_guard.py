"""Who may ask and who may change something: tokens, hosts, origins, content types, sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from live_eval.config import HttpSettings, ServiceConfig, is_loopback
from live_eval.errors import ConfigError
from live_eval.http.guard import MAX_BODY

if TYPE_CHECKING:
    from fakes.http_bench import HttpBench

TOKEN = "a-token-of-enough-characters"
MakeHttp = Callable[..., "HttpBench"]


async def code(http: HttpBench, method: str, path: str, **request: object) -> tuple[int, str]:
    """Status and error code of one request."""
    async with http.client() as client:
        answer = await client.request(method, path, **request)  # type: ignore[arg-type]
    return answer.status_code, answer.json()["error"]["code"] if answer.status_code >= 400 else ""


# --- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.7", False),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
    ],
)
def test_what_counts_as_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"host": "0.0.0.0"}, "give a token, or listen on 127.0.0.1"),
        ({"host": ""}, "give a token"),
        ({"token": "short"}, "give 16 or more"),
        ({"port": 70_000}, "give 0 to 65535"),
        ({"checkpoint_roots": (Path("ckpt"),)}, "give absolute paths"),
    ],
)
def test_settings_that_would_open_a_door_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        HttpSettings(**settings)  # type: ignore[arg-type]


def test_a_token_is_neither_shown_nor_readable_by_others(http: HttpBench, tmp_path: Path) -> None:
    settings = HttpSettings(host="0.0.0.0", token=TOKEN)
    assert TOKEN not in repr(settings)
    config = http.config
    path = tmp_path / "config.json"
    ServiceConfig(
        run_id="run",
        run_dir=config.run_dir,
        base=config.base,
        datasets=config.datasets,
        scheduler=config.scheduler,
        store=config.store,
        http=settings,
    ).save(path)
    assert path.stat().st_mode & 0o077 == 0
    assert ServiceConfig.load(path).http == settings


# --- without a token --------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "10.0.0.7", "", "[bad"])
async def test_a_name_that_was_rebound_to_loopback_is_refused(http: HttpBench, host: str) -> None:
    for path in ("/api/v1/status", "/", "/metrics"):
        assert await code(http, "GET", path, headers={"host": host}) == (403, "foreign_host")


@pytest.mark.parametrize("host", ["127.0.0.1:9", "localhost", "[::1]:80"])
async def test_loopback_names_are_answered_on_any_port(http: HttpBench, host: str) -> None:
    assert await code(http, "GET", "/healthz", headers={"host": host}) == (200, "")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"origin": "https://evil.example"}, (403, "foreign_origin")),
        ({"origin": "null"}, (403, "foreign_origin")),
        ({"origin": "http://127.0.0.1:9999"}, (403, "foreign_origin")),
        ({"sec-fetch-site": "cross-site"}, (403, "foreign_origin")),
        ({"sec-fetch-site": "same-site"}, (403, "foreign_origin")),
        ({"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"}, (503, "starting")),
        ({}, (503, "starting")),
    ],
)
async def test_a_page_of_another_origin_changes_nothing(
    http: HttpBench, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    body = {"job_id": "v1/a"}
    assert await code(http, "POST", "/api/v1/cancel", json=body, headers=headers) == expected


async def test_a_foreign_page_cannot_take_the_places_of_event_streams(http: HttpBench) -> None:
    headers = {"sec-fetch-site": "cross-site"}
    assert await code(http, "GET", "/api/v1/events", headers=headers) == (403, "foreign_origin")
    async with http.client(**headers) as client:
        assert (await client.get("/")).status_code == 200  # a link to the page may be anywhere


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "text/json"])
async def test_what_a_form_can_send_is_refused(http: HttpBench, kind: str) -> None:
    request = {"content": b'{"job_id": "v1/a"}', "headers": {"content-type": kind}}
    assert await code(http, "POST", "/api/v1/cancel", **request) == (415, "not_json")


async def test_a_large_body_is_refused_whether_it_says_so_or_not(http: HttpBench) -> None:
    async def chunks() -> object:
        for _ in range(70):
            yield b" " * 1024

    headers = {"content-type": "application/json"}
    large = {"content": b" " * (MAX_BODY + 1), "headers": headers}
    assert await code(http, "POST", "/api/v1/cancel", **large) == (413, "too_large")
    assert await code(http, "POST", "/api/v1/cancel", content=chunks(), headers=headers) == (413, "too_large")


async def test_every_answer_carries_the_page_policy_and_none_allows_another_origin(http: HttpBench) -> None:
    async with http.client() as client:
        for path in ("/api/v1/status", "/nothing", "/api/v1/nothing", "/metrics"):
            answer = await client.get(path, headers={"origin": "https://evil.example"})
            assert "script-src 'self'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in answer.headers


# --- with a token -----------------------------------------------------------------------------


async def test_without_the_token_nothing_but_the_page_is_answered(make_http: MakeHttp) -> None:
    http = make_http(host="0.0.0.0", token=TOKEN)
    paths = ("status", "versions", "jobs", "results", "samples?job_id=x", "engines", "lane", "events")
    for path in (*(f"/api/v1/{name}" for name in paths), "/metrics", "/openapi.json"):
        assert await code(http, "GET", path) == (401, "no_token")
    assert await code(http, "POST", "/api/v1/cancel", json={"job_id": "v1/a"}) == (401, "no_token")
    assert await code(http, "GET", "/healthz") == (200, "")


@pytest.mark.parametrize("given", ["Bearer wrong", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ü"])
async def test_a_wrong_token_is_refused(make_http: MakeHttp, given: str) -> None:
    http = make_http(token=TOKEN)
    headers = {"authorization": given.encode()}
    assert await code(http, "GET", "/api/v1/status", headers=headers) == (401, "wrong_token")


@pytest.mark.parametrize("given", [f"Basic {TOKEN}", TOKEN, "Bearer", ""])
async def test_a_token_in_another_form_is_none(make_http: MakeHttp, given: str) -> None:
    http = make_http(token=TOKEN)
    assert await code(http, "GET", "/api/v1/status", headers={"authorization": given}) == (401, "no_token")


async def test_the_token_opens_everything_by_any_host_name(make_http: MakeHttp) -> None:
    http = make_http(host="0.0.0.0", token=TOKEN)
    headers = {"authorization": f"Bearer {TOKEN}", "host": "node7.cluster:8000"}
    assert await code(http, "GET", "/api/v1/status", headers=headers) == (200, "")


async def test_a_page_logs_in_once_and_the_cookie_does_the_rest(make_http: MakeHttp) -> None:
    http = make_http(token=TOKEN)
    async with http.client() as client:
        wrong = await client.post("/api/v1/login", json={"token": "no"})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "wrong_token")
        answer = await client.post("/api/v1/login", json={"token": TOKEN})
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert TOKEN not in cookie
        assert (await client.get("/api/v1/status")).status_code == 200
        foreign = await client.post(
            "/api/v1/cancel", json={"job_id": "v1/a"}, headers={"origin": "https://evil.example"}
        )
        assert foreign.json()["error"]["code"] == "foreign_origin"
    async with http.client(cookie="live_eval=0000") as client:
        assert (await client.get("/api/v1/status")).status_code == 401


async def test_a_login_from_a_foreign_page_is_refused(make_http: MakeHttp) -> None:
    http = make_http(token=TOKEN)
    headers = {"origin": "https://evil.example"}
    answer = await code(http, "POST", "/api/v1/login", json={"token": TOKEN}, headers=headers)
    assert answer == (403, "foreign_origin")
