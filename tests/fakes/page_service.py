"""A stand-in of the service's HTTP side: the page's files, the API over a World, events on demand.

It says what it is told to say. The page is served with the strictest content security policy, and every
request is kept, so that a test sees what the page asked.
"""

from __future__ import annotations

import json
import mimetypes
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from fakes import page_answers

if TYPE_CHECKING:
    from fakes.page_world import World

PAGE = Path(__file__).resolve().parents[2] / "live_eval" / "http" / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Refusal(Exception):
    """An answer of status 400 and up."""

    def __init__(self, status: int, code: str, what: str, value: object = None, what_to_do: str = "") -> None:
        super().__init__(what)
        self.status = status
        self.body = {"error": {"code": code, "what": what, "value": value, "what_to_do": what_to_do}}


class PageService:
    """Serves one World on a free port of loopback."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[tuple[str, str]] = []
        """Method and path of each request of the API, queries too."""
        self.posted: list[tuple[str, Any]] = []
        self.refusals: dict[str, Refusal] = {}
        """Route -> what it is refused with from now on."""
        self.token_needed = False
        self.last_ids: list[str] = []
        """`Last-Event-ID` of each event stream that was opened."""
        self._number = 0
        self._clients: list[queue.Queue[bytes | None]] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        """Answer nothing any more."""
        self.drop_clients()
        self._server.shutdown()
        self._server.server_close()

    def push(self, kind: str, data: object) -> None:
        """Send an event to every open stream."""
        with self._lock:
            self._number += 1
            frame = f"id: life-{self._number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()
            for client in self._clients:
                client.put(frame)

    def drop_clients(self) -> None:
        """End every open stream."""
        with self._lock:
            for client in self._clients:
                client.put(None)
            self._clients.clear()

    def wait_for_client(self, timeout_s: float = 10.0) -> None:
        """Return when the page follows."""
        tick = threading.Event()
        for _ in range(int(timeout_s / 0.02)):
            if self._clients:
                return
            tick.wait(0.02)
        raise TimeoutError("no page follows the events")

    # --- answers --------------------------------------------------------------------------

    def get(self, path: str, query: dict[str, list[str]]) -> object:
        """The JSON answer of a GET."""
        world = self.world
        one = {name: values[-1] for name, values in query.items()}
        match path.split("/"):
            case ["status"]:
                return page_answers.status(world)
            case ["engines"]:
                return {"items": list(world.engines.values())}
            case ["datasets"]:
                return {"items": page_answers.datasets(world)}
            case ["versions"]:
                found = [
                    each for each in reversed(world.versions) if one.get("state") in (None, each["state"])
                ]
                return paged(found, one)
            case ["jobs"]:
                return paged([job for job in reversed(world.jobs.values()) if fits(job, query)], one)
            case ["jobs", *rest]:
                return self._job("/".join(rest))
            case ["results"]:
                return paged([each for each in world.results if fits(each, query)], one)
            case ["samples"]:
                job_id = one["job_id"]
                if job_id not in world.samples:
                    raise Refusal(404, "no_samples", f"{job_id} has no samples", job_id)
                found = [
                    each for each in world.samples[job_id] if one.get("status") in (None, each["status"])
                ]
                return {**paged(found, one), "job_id": job_id, "attempt": 1, "running": False}
            case ["compare"]:
                found = page_answers.compare(world, one["left"], one["right"])
                items = [each for each in found["items"] if one.get("change") in (None, each["change"])]
                return {**found, **paged(items, one)}
            case ["lane"]:
                return page_answers.lane(
                    world, float(one.get("since", 0)), float(one["until"]) if "until" in one else None
                )
        raise Refusal(404, "no_such_route", f"no route {path}")

    def _job(self, job_id: str) -> object:
        if job_id not in self.world.jobs:
            raise Refusal(
                404, "no_such_job", f"there is no job {job_id}", job_id, "GET /api/v1/jobs lists the jobs"
            )
        job = self.world.jobs[job_id]
        steps = [("", "waiting", "every", job["requested_at"])]
        if job["started_at"] is not None:
            steps.append(("waiting", "running", "", job["started_at"]))
        if job["finished_at"] is not None:
            steps.append((steps[-1][1], job["status"], job["reason"], job["finished_at"]))
        names = ("from_status", "to_status", "reason", "at")
        return {
            **job,
            "transitions": [{**dict(zip(names, step, strict=True)), "attempt": 1} for step in steps],
            "attempts": []
            if job["started_at"] is None
            else [
                {
                    "attempt": 1,
                    "began_at": job["started_at"],
                    "ended_at": job["finished_at"],
                    "outcome": job["status"],
                }
            ],
            "result": next((each for each in self.world.results if each["job_id"] == job_id), None),
        }

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, object]:
        """Status and JSON answer of a POST."""
        world = self.world
        match path:
            case "login":
                if body["token"] != "secret":
                    raise Refusal(401, "wrong_token", "this is not the token")
                self.token_needed = False
                return 204, None
            case "cancel":
                return 202, {"job_id": body["job_id"], "status": world.jobs[body["job_id"]]["status"]}
            case "checkpoints":
                target = f"c{1 + sum(job['kind'] == 'checkpoint' for job in world.jobs.values())}"
                return 201, {"job_ids": [f"{target}/{name}" for name in body["datasets"]], "target": target}
        raise Refusal(404, "no_such_route", f"no route {path}")

    # --- HTTP -----------------------------------------------------------------------------

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

            def do_GET(self) -> None:
                path = urlsplit(self.path)
                if not path.path.startswith("/api/v1/"):
                    return self._file(path.path)
                name = unquote(path.path.removeprefix("/api/v1/"))
                service.asked.append(("GET", self.path))
                if name == "events" and not service.token_needed and "events" not in service.refusals:
                    return self._events()
                return self._answer(name, lambda: (200, service.get(name, parse_qs(path.query))))

            def do_POST(self) -> None:
                name = self.path.removeprefix("/api/v1/")
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.asked.append(("POST", self.path))
                service.posted.append((name, body))
                return self._answer(name, lambda: service.post(name, body))

            def _answer(self, name: str, make: Any) -> None:
                try:
                    if service.token_needed and name != "login":
                        raise Refusal(401, "no_token", "a token is needed")
                    if name in service.refusals:
                        raise service.refusals[name]
                    status, body = make()
                except Refusal as refusal:
                    status, body = refusal.status, refusal.body
                data = b"" if body is None else json.dumps(body).encode()
                self._head(status, "application/json", length=len(data))
                self.wfile.write(data)

            def _file(self, path: str) -> None:
                file = PAGE / (path.strip("/") or "index.html")
                if not file.is_file() or file.parent != PAGE:
                    return self._head(HTTPStatus.NOT_FOUND, "text/plain", length=0)
                data = file.read_bytes()
                kind = mimetypes.guess_type(file.name)[0] or "text/plain"
                self._head(200, kind, length=len(data), policy=True)
                self.wfile.write(data)
                return None

            def _events(self) -> None:
                service.last_ids.append(self.headers.get("Last-Event-ID", ""))
                mine: queue.Queue[bytes | None] = queue.Queue()
                mine.put(b'retry: 2000\n\nevent: hello\ndata: {"life": "life", "run_id": "run"}\n\n')
                self._head(200, "text/event-stream")
                self.close_connection = True
                with service._lock:
                    service._clients.append(mine)
                while (frame := mine.get()) is not None:
                    try:
                        self.wfile.write(frame)
                        self.wfile.flush()
                    except OSError:
                        return

            def _head(
                self, status: int, kind: str, *, length: int | None = None, policy: bool = False
            ) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                if length is not None:
                    self.send_header("Content-Length", str(length))
                else:
                    self.send_header("Connection", "close")
                if policy:
                    self.send_header("Content-Security-Policy", POLICY)
                self.end_headers()

        return Handler


def fits(item: dict[str, Any], query: dict[str, list[str]]) -> bool:
    """Whether the filters of /jobs and /results leave the item."""
    return all(
        str(item[name]) in query[name]
        for name in ("status", "dataset", "kind", "policy_version")
        if name in query
    )


def paged(items: list[dict[str, Any]], one: dict[str, str]) -> dict[str, Any]:
    """A page of a list."""
    offset, limit = int(one.get("offset", 0)), int(one.get("limit", 50))
    return {"total": len(items), "offset": offset, "limit": limit, "items": items[offset : offset + limit]}


@contextmanager
def page_service(world: World) -> Iterator[PageService]:
    """A PageService for a block."""
    service = PageService(world)
    try:
        yield service
    finally:
        service.close()
