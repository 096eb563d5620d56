"""Random requests by the API's own OpenAPI document: no fault, and every answer as the document says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fakes.http_bench import HttpBench
from fakes.job_bench import target
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def random_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBench]:
    http = HttpBench(tmp_path_factory.mktemp("random"))
    http.bench.seal(1)
    http.bench.ledger.create_jobs(target(1), ["a"], now=1.0)
    http.coordinator = http.bench.coordinator()
    yield http
    http.close()


def test_no_request_makes_a_fault_and_every_answer_is_as_documented(random_http: HttpBench) -> None:
    schema = schemathesis.openapi.from_asgi(
        "/openapi.json", random_http.api.app, headers={"host": "127.0.0.1"}
    )
    for found in schema.exclude(path="/api/v1/events").get_all_operations():
        operation = found.ok()
        try_out(operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE))
        if operation.definition.raw.keys() & {"parameters", "requestBody"}:  # else nothing can be wrong
            try_out(operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))


def try_out(cases: Any) -> None:
    """Some requests of one operation and kind."""

    @given(case=cases)
    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def one(case: schemathesis.Case) -> None:
        case.headers = {**(case.headers or {}), "host": "127.0.0.1"}
        case.call_and_validate(checks=CHECKS)

    one()


def test_every_route_is_in_the_page_of_the_documentation(random_http: HttpBench) -> None:
    contract = (Path(__file__).resolve().parents[3] / "docs" / "http_api.md").read_text(encoding="utf-8")
    for path, methods in random_http.api.app.api.openapi()["paths"].items():
        for method in methods:
            assert f"{method.upper():4} {path}".rstrip() in contract, path
