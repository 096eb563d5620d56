"""The HTTP API over a coordinator's bench: real store, ledger and loop, no engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from fakes.job_bench import Bench

from live_eval.config import HttpSettings, ServiceConfig, StoreSettings
from live_eval.errors import LiveEvalError
from live_eval.evaluation.datasets import EvalSetConfig
from live_eval.http.api import HttpApi
from live_eval.http.source import ServiceSide
from protocol.messages import JobEvent, ServiceStatus

if TYPE_CHECKING:
    from live_eval.coordinator.coordinator import Coordinator
    from live_eval.reasons import JobStatus

HERE = "http://127.0.0.1:8000"


class HttpBench:
    """A run directory, its coordinator and its HTTP API; `life` runs the first, the API is there always."""

    def __init__(self, root: Path, **http: Any) -> None:
        self.bench = Bench(root)
        self.config = ServiceConfig(
            run_id="run",
            run_dir=root,
            base=root / "base",
            datasets=tuple(
                EvalSetConfig(name=name, path=root / f"{name}.jsonl") for name in self.bench.config.datasets
            ),
            scheduler=self.bench.config,
            store=StoreSettings(max_bytes=1 << 30),
            http=HttpSettings(**{"checkpoint_roots": (root,), **http}),
        )
        self.coordinator: Coordinator | None = None
        for name in self.bench.config.datasets:
            description = {"file_sha256": "ab", "num_rows": 4, "settings": {}}
            self.bench.ledger.note_dataset(name, description, now=1.0)
        self.api = HttpApi(
            ServiceSide(config=self.config, status=self._status, submit=self._submit, cancel=self._cancel)
        )

    def close(self) -> None:
        """Close all databases."""
        self.api.activity.close()
        self.api.source.close()
        self.bench.close()

    def client(self, **headers: str) -> httpx.AsyncClient:
        """A client of the application, without a network."""
        transport = httpx.ASGITransport(app=self.api.app)
        return httpx.AsyncClient(transport=transport, base_url=HERE, headers=headers)

    async def get(self, path: str, expected: int = 200, /, **params: Any) -> Any:
        """The JSON at a path."""
        async with self.client() as client:
            answer = await client.get(path, params=params)
        assert answer.status_code == expected, answer.text
        return answer.json()

    async def post(self, path: str, body: Any, expected: int) -> Any:
        """The JSON answer to a JSON body."""
        async with self.client() as client:
            answer = await client.post(path, json=body)
        assert answer.status_code == expected, answer.text
        return answer.json() if answer.content else None

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Coordinator]:
        """A running coordinator that tells the API what happens, as a service does."""
        self.bench.listener = self._announce
        async with self.bench.life() as coordinator:
            self.coordinator = coordinator
            yield coordinator

    def _announce(self, event: JobEvent) -> None:
        self.api.job_event(event)

    def _serving(self) -> Coordinator:
        if self.coordinator is None:
            raise LiveEvalError("the service is starting")
        return self.coordinator

    def _status(self) -> ServiceStatus:
        return ServiceStatus(state="starting") if self.coordinator is None else self.coordinator.status()

    def _submit(self, path: str, datasets: Any, priority: int) -> tuple[str, ...]:
        return self._serving().submit_checkpoint(path, datasets, priority=priority)

    def _cancel(self, job_id: str) -> JobStatus:
        return self._serving().cancel(job_id)
