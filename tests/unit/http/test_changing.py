"""Checkpoints that are submitted and jobs that are cancelled over HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.checkpoints import Model
from fakes.source import FakeSource

if TYPE_CHECKING:
    from fakes.http_bench import HttpBench


def error(answer: dict) -> tuple[str, object]:
    return answer["error"]["code"], answer["error"]["value"]


async def test_a_checkpoint_is_submitted_and_evaluated(http: HttpBench, tmp_path: Path) -> None:
    path = Model(seed=3).write(tmp_path / "step_5")
    async with http.life():
        body = {"path": str(path), "datasets": ["b"], "priority": 7}
        answer = await http.post("/api/v1/checkpoints", body, 201)
        assert answer == {"job_ids": ["c1/b"], "target": "c1"}
        await http.bench.until(lambda: "c1/b" in http.bench.ends)
    assert (await http.get("/api/v1/jobs/c1/b"))["priority"] == 7


async def test_a_link_that_leads_out_of_the_roots_is_refused(
    http: HttpBench, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = Model(seed=3).write(tmp_path_factory.mktemp("outside") / "step_5")
    (tmp_path / "link").symlink_to(outside)
    async with http.life():
        for path in (outside, tmp_path / "link", tmp_path / ".." / outside.parent.name / "step_5"):
            answer = await http.post("/api/v1/checkpoints", {"path": str(path)}, 403)
            assert error(answer) == ("outside_roots", str(path))
            assert str(tmp_path) in answer["error"]["what_to_do"]
    assert http.bench.ledger.jobs() == []


async def test_a_link_within_the_roots_is_followed_and_named_by_its_target(
    http: HttpBench, tmp_path: Path
) -> None:
    path = Model(seed=3).write(tmp_path / "step_5")
    (tmp_path / "latest").symlink_to(path)
    async with http.life():
        await http.post("/api/v1/checkpoints", {"path": str(tmp_path / "latest")}, 201)
    assert {row.target.path for row in http.bench.ledger.jobs()} == {os.path.realpath(path)}


async def test_without_roots_nothing_can_be_submitted(
    make_http: Callable[..., HttpBench], tmp_path: Path
) -> None:
    http = make_http(checkpoint_roots=())
    path = Model(seed=3).write(tmp_path / "step_5")
    async with http.life():
        answer = await http.post("/api/v1/checkpoints", {"path": str(path)}, 403)
    assert answer["error"]["what_to_do"].startswith("start the service with --checkpoint-root DIR")


@pytest.mark.parametrize("given", ["step_5", "./step_5", "", "/a\0b"])
async def test_a_path_that_is_not_absolute_is_refused(http: HttpBench, given: str) -> None:
    async with http.life():
        answer = await http.post("/api/v1/checkpoints", {"path": given}, 422)
    assert answer["error"]["code"] == "bad_value"


@pytest.mark.parametrize("name", ["step_20261130110354123456", "a\nb", "=1+1", "<b>x"])
async def test_a_directory_may_have_any_name_that_is_text(http: HttpBench, tmp_path: Path, name: str) -> None:
    path = Model(seed=3).write(tmp_path / name)
    async with http.life():
        await http.post("/api/v1/checkpoints", {"path": str(path), "datasets": ["a"]}, 201)
        await http.bench.until(lambda: http.bench.ends == {"c1/a": "succeeded: completed"})
        assert (await http.get("/api/v1/jobs/c1/a"))["checkpoint"] == str(path)


async def test_one_whose_name_is_no_text_is_refused_and_the_service_goes_on(
    http: HttpBench, tmp_path: Path
) -> None:
    """The bytes of a name on a disk are anything; a link to it may have a name of its own."""
    (tmp_path / "link").symlink_to(Model(seed=3).write(tmp_path / "step_\udcff"))
    async with http.life():
        answer = await http.post("/api/v1/checkpoints", {"path": str(tmp_path / "link")}, 422)
        assert "no UTF-8 text: rename" in answer["error"]["what"]
        path = Model(seed=4).write(tmp_path / "step_5")
        await http.post("/api/v1/checkpoints", {"path": str(path), "datasets": ["a"]}, 201)
        await http.bench.until(lambda: http.bench.ends == {"c1/a": "succeeded: completed"})


async def test_what_is_no_whole_safetensors_checkpoint_is_refused_with_what_to_do(
    http: HttpBench, tmp_path: Path
) -> None:
    torch_dist = tmp_path / "iter_5"
    torch_dist.mkdir()
    (torch_dist / "common.pt").touch()
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_text("{}")
    (pickled / "pytorch_model.bin").touch()
    async with http.life():
        answer = await http.post("/api/v1/checkpoints", {"path": str(torch_dist)}, 422)
        assert answer["error"]["code"] == "corrupt_version"
        assert "tools/convert_torch_dist_to_hf.py" in answer["error"]["what_to_do"]
        answer = await http.post("/api/v1/checkpoints", {"path": str(pickled)}, 422)
        assert "save_pretrained" in answer["error"]["what_to_do"]
        answer = await http.post("/api/v1/checkpoints", {"path": str(tmp_path / "nothing")}, 422)
        assert error(answer) == ("corrupt_version", str(tmp_path / "nothing"))


async def test_a_name_that_no_file_can_have_is_refused(http: HttpBench, tmp_path: Path) -> None:
    async with http.life():
        answer = await http.post("/api/v1/checkpoints", {"path": str(tmp_path / ("x" * 300))}, 422)
    assert answer["error"]["code"] == "corrupt_version"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "body.path"),
        ({"path": 5}, "body.path"),
        ({"path": "/x", "priority": 101}, "body.priority"),
        ({"path": "/x", "priority": "1"}, "body.priority"),
        ({"path": "/x", "datasets": "a"}, "body.datasets"),
        ({"path": "/x", "dataset": ["a"]}, "body.dataset"),
        ([], "body"),
    ],
)
async def test_a_field_that_is_wrong_is_named(http: HttpBench, body: object, where: str) -> None:
    answer = await http.post("/api/v1/checkpoints", body, 422)
    assert answer["error"]["code"] == "bad_value"
    assert answer["error"]["value"]["where"] == where


async def test_a_body_that_is_no_json_is_told(http: HttpBench) -> None:
    async with http.client() as client:
        for text in (b"{", b"\xff", b""):
            answer = await client.post(
                "/api/v1/cancel", content=text, headers={"content-type": "application/json"}
            )
            assert answer.status_code in (400, 422)
            assert answer.json()["error"]["code"] in ("bad_json", "bad_value")


async def test_an_unknown_dataset_is_refused(http: HttpBench, tmp_path: Path) -> None:
    path = Model(seed=3).write(tmp_path / "step_5")
    async with http.life():
        answer = await http.post("/api/v1/checkpoints", {"path": str(path), "datasets": ["x"]}, 422)
    assert answer["error"]["code"] == "config"
    assert "configured are: a, b" in answer["error"]["what"]


async def test_a_running_job_is_cancelled_and_says_so_once(http: HttpBench) -> None:
    held = asyncio.Event()
    http.bench.group.make_source = lambda: FakeSource(
        hold=lambda requests: any((each.text or "").startswith("a") for each in requests), held=held
    )
    http.bench.seal(1)
    async with http.life():
        await held.wait()
        answer = await http.post("/api/v1/cancel", {"job_id": "v1/a"}, 202)
        assert answer == {"job_id": "v1/a", "status": "running"}
        await http.bench.until(lambda: len(http.bench.ends) == 2)
        assert error(await http.post("/api/v1/cancel", {"job_id": "v1/a"}, 409)) == (
            "already_ended",
            "cancelled",
        )
        assert error(await http.post("/api/v1/cancel", {"job_id": "v7/a"}, 404)) == ("no_such_job", "v7/a")
    assert http.bench.ends["v1/a"] == "cancelled: user"


async def test_a_service_that_starts_or_has_finished_says_so(http: HttpBench, tmp_path: Path) -> None:
    path = Model(seed=3).write(tmp_path / "step_5")
    body = {"path": str(path)}
    async with http.client() as client:
        answer = await client.post("/api/v1/checkpoints", json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    async with http.life() as coordinator:
        coordinator.training_ended()
    assert error(await http.post("/api/v1/checkpoints", body, 409)) == ("finished", None)


async def test_unknown_routes_and_methods_are_told(http: HttpBench) -> None:
    assert error(await http.get("/api/v1/nothing", 404))[0] == "no_such_route"
    for path in ("/nothing.js", "/%00", "/index.html%00.js", "/..%2f..%2fapp.py"):
        assert error(await http.get(path, 404))[0] == "no_such_route"
    async with http.client() as client:
        for request in ("GET /api/v1/cancel", "DELETE /api/v1/jobs", "PUT /api/v1/status", "TRACE /metrics"):
            answer = await client.request(*request.split())
            assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
            assert answer.headers["allow"]
