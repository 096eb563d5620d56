"""A server that the trainer updates: whether it wants weight updates opened, it says itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from live_eval.errors import TransportError
from live_eval.publisher.sglang_engine import SGLangEngine
from protocol.messages import BucketHeader, TensorMeta

HEADER = BucketHeader(
    sync_id="s",
    source="0",
    index=0,
    weight_version=7,
    tensors=(TensorMeta(name="x", dtype="float32", shape=(1,)),),
)


class Server(ThreadingHTTPServer):
    """Answers 200 but to what it does not know; `calls` are the paths in order."""

    def __init__(self, unknown: set[str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls: list[str] = []
        self.unknown = unknown
        self.refused: set[str] = set()
        self.label = "default"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.calls.append(self.path)
        status = 404 if self.path in self.server.unknown else 400 if self.path in self.server.refused else 200
        self._answer(status, {"success": status == 200})

    def do_GET(self) -> None:
        self._answer(200, {"weight_version": self.server.label})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


@contextmanager
def engine_of(*unknown: str) -> Iterator[tuple[Server, SGLangEngine]]:
    with Server(set(unknown)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        engine = SGLangEngine(server.url)
        try:
            yield server, engine
        finally:
            engine.close()
            server.shutdown()
            thread.join()


def sync(engine: SGLangEngine) -> None:
    """The requests of one update, in their order."""
    engine.alive(5.0)
    engine.pause(5.0)
    engine.flush(5.0)
    engine.receive_bucket(HEADER, "group", 5.0)
    engine.resume(5.0)


def test_a_newer_server_has_an_update_opened_before_the_bucket_and_closed_after_it() -> None:
    with engine_of() as (server, engine):
        sync(engine)
        assert server.calls == [
            "/pause_generation",
            "/flush_cache",
            "/begin_weight_update",
            "/update_weights_from_distributed",
            "/end_weight_update",
            "/continue_generation",
        ]


def test_an_older_server_is_asked_once_a_life() -> None:
    with engine_of("/begin_weight_update") as (server, engine):
        sync(engine)
        server.label = "7"
        sync(engine)
        assert server.calls.count("/begin_weight_update") == 1
        assert "/end_weight_update" not in server.calls
        # A new server on the same port may be a newer one.
        server.label, server.unknown = "default", set()
        sync(engine)
        assert server.calls.count("/begin_weight_update") == 2
        assert server.calls[-2:] == ["/end_weight_update", "/continue_generation"]


def test_a_server_that_is_prepared_again_has_one_update_open_and_one_given_up_is_closed() -> None:
    with engine_of() as (server, engine):
        for _ in range(2):
            engine.pause(5.0)
            engine.flush(5.0)
        engine.resume(5.0)
        engine.resume(5.0)
        assert server.calls.count("/begin_weight_update") == server.calls.count("/end_weight_update") == 1


def test_a_server_that_refuses_an_update_is_left_out_before_the_broadcast() -> None:
    with engine_of() as (server, engine):
        server.refused.add("/begin_weight_update")
        engine.pause(5.0)
        with pytest.raises(TransportError, match="opens no weight update: 400"):
            engine.flush(5.0)
        engine.resume(5.0)
        assert "/end_weight_update" not in server.calls
