"""What the API tells of a run, from its ledger, its store and its sample files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.checkpoints import Model, sync_begin
from fakes.http_bench import HttpBench
from fakes.job_bench import target

from live_eval.reasons import DiscardReason


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpBench]:
    """Versions 1 and 2 and a checkpoint are evaluated on a and b."""
    http = HttpBench(tmp_path_factory.mktemp("ran"))
    asyncio.run(evaluate(http))
    yield http
    http.close()


async def evaluate(http: HttpBench) -> None:
    path = Model(seed=9).write(http.bench.samples.parent / "step_70")
    async with http.life() as coordinator:
        for version in (1, 2):
            http.bench.seal(version)
            coordinator.poke()
            await http.bench.until(lambda n=version: len(http.bench.ends) == 2 * n)
        coordinator.submit_checkpoint(str(path), ["a"], priority=3)
        await http.bench.until(lambda: len(http.bench.ends) == 5)


async def test_the_status_says_what_the_service_does(ran: HttpBench) -> None:
    status = await ran.get("/api/v1/status")
    assert status["run_id"] == "run"
    assert (status["stable_version"], status["scored_version"]) == (2, 2)
    assert (status["lag_versions"], status["lag_s"]) == (0, 0.0)
    assert status["totals"] == {"succeeded": 5}
    assert status["datasets"] == ["a", "b"]
    assert status["store"]["num_sealed"] == 2
    assert status["held_s"] == 0.75
    assert status["last_event_id"].startswith(ran.api.events.life)


async def test_each_version_says_how_long_its_sync_held_the_trainer(ran: HttpBench) -> None:
    versions = (await ran.get("/api/v1/versions"))["items"]
    assert {each["policy_version"]: each["held_s"] for each in versions} == {1: 0.25, 2: 0.5}


async def test_versions_come_newest_first_with_their_jobs_and_scores(ran: HttpBench) -> None:
    page = await ran.get("/api/v1/versions", limit=1)
    assert (page["total"], page["offset"], page["limit"]) == (2, 0, 1)
    (newest,) = page["items"]
    assert (newest["policy_version"], newest["state"], newest["is_stable"]) == (2, "sealed", True)
    assert newest["jobs"] == ["v2/a", "v2/b"]
    assert newest["scores"] == {"a": 1.0, "b": 1.0}
    assert newest["digest"] == ran.bench.record(2).digest
    assert (await ran.get("/api/v1/versions/1"))["policy_version"] == 1
    assert (await ran.get("/api/v1/versions/7", 404))["error"]["code"] == "no_such_version"


async def test_a_sync_that_was_refused_without_a_number_is_among_the_versions(http: HttpBench) -> None:
    http.bench.seal(1)
    http.bench.store.sync_refused(sync_begin(1), DiscardReason.BAD_WEIGHT_VERSION, "twice")
    page = await http.get("/api/v1/versions", state="discarded")
    assert [(item["policy_version"], item["reason"]) for item in page["items"]] == [
        (None, "bad_weight_version")
    ]
    assert (await http.get("/api/v1/status"))["discarded"] == {"bad_weight_version": 1}


async def test_jobs_are_filtered_counted_and_paged(ran: HttpBench) -> None:
    async def ids(**params: object) -> list[str]:
        return [job["job_id"] for job in (await ran.get("/api/v1/jobs", **params))["items"]]

    assert await ids() == ["c1/a", "v2/b", "v2/a", "v1/b", "v1/a"]
    assert await ids(kind="checkpoint") == ["c1/a"]
    assert await ids(kind="live", dataset="a") == ["v2/a", "v1/a"]
    assert await ids(policy_version=1) == ["v1/b", "v1/a"]
    assert await ids(status=["failed", "cancelled"]) == []
    assert await ids(offset=3, limit=1) == ["v1/b"]
    assert (await ran.get("/api/v1/jobs", limit=1))["total"] == 5


async def test_one_job_has_its_attempts_transitions_and_result(ran: HttpBench) -> None:
    job = await ran.get("/api/v1/jobs/c1/a")
    assert (job["kind"], job["target"], job["checkpoint_name"], job["train_step"]) == (
        "checkpoint",
        "c1",
        "step_70",
        70,
    )
    assert (job["priority"], job["score"], job["estimate"]) == (3, 1.0, None)
    assert [move["to_status"] for move in job["transitions"]] == ["waiting", "running", "succeeded"]
    assert [(each["attempt"], each["outcome"]) for each in job["attempts"]] == [(1, "succeeded")]
    assert job["result"]["metrics"]["pass@1"] == {"value": 1.0, "interval": None}
    error = (await ran.get("/api/v1/jobs/v9/a", 404))["error"]
    assert (error["code"], error["value"]) == ("no_such_job", "v9/a")


async def test_results_come_in_the_order_in_which_they_became_durable(ran: HttpBench) -> None:
    page = await ran.get("/api/v1/results", dataset="a")
    assert [result["job_id"] for result in page["items"]] == ["v1/a", "v2/a", "c1/a"]
    assert page["items"][0]["result_id"] == "run/v1/a"
    assert page["items"][0]["duration_s"] >= 0


async def test_datasets_say_what_they_are(ran: HttpBench) -> None:
    (first, _) = (await ran.get("/api/v1/datasets"))["items"]
    assert (first["name"], first["num_rows"], first["num_expected"], first["since"]) == ("a", 4, 4, 1.0)


async def test_samples_are_ordered_filtered_and_paged(ran: HttpBench) -> None:
    page = await ran.get("/api/v1/samples", job_id="v1/b", limit=2, offset=1)
    assert (page["total"], page["running"], page["attempt"]) == (4, False, 1)
    assert [(each["row_id"], each["response"], each["reward"]) for each in page["items"]] == [
        ("r1", "B1", 1.0),
        ("r2", "B2", 1.0),
    ]
    assert (await ran.get("/api/v1/samples", job_id="v1/b", status="errored"))["total"] == 0
    assert (await ran.get("/api/v1/samples", job_id="v1/b", row_id="r3"))["total"] == 1


def rewrite(http: HttpBench, job_id: str, rewards: dict[str, float | None], **fields: object) -> None:
    """Give the samples of a job other rewards, or other texts."""
    result = http.bench.ledger.result(job_id)
    assert result is not None
    path = Path(result.samples_path)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for line in lines:
        if line["row_id"] in rewards:
            line["reward"] = rewards[line["row_id"]]
            line["status"] = "errored" if line["reward"] is None else "scored"
        line.update(fields)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


async def test_two_jobs_side_by_side_say_what_changed(ran: HttpBench) -> None:
    rewrite(ran, "v1/a", {"r0": 0.0, "r1": 0.0})
    rewrite(ran, "v2/a", {"r2": 0.5, "r3": None})
    found = await ran.get("/api/v1/compare", left="v1/a", right="v2/a")
    assert [item["change"] for item in found["items"]] == ["better", "better", "worse", "unpaired"]
    summary = found["summary"]
    assert (summary["paired"], summary["better"], summary["worse"], summary["unpaired"]) == (3, 2, 1, 1)
    assert summary["difference"] == pytest.approx(0.5)
    assert summary["interval"]["low"] < 0.5 < summary["interval"]["high"]
    worse = await ran.get("/api/v1/compare", left="v1/a", right="v2/a", change="worse")
    assert [(item["row_id"], item["left"]["reward"], item["right"]["reward"]) for item in worse["items"]] == [
        ("r2", 1.0, 0.5)
    ]
    assert worse["summary"] == summary


async def test_jobs_of_two_datasets_cannot_be_compared(ran: HttpBench) -> None:
    error = (await ran.get("/api/v1/compare", 422, left="v1/a", right="v1/b"))["error"]
    assert (error["code"], error["value"]) == ("bad_value", {"where": "right", "given": "v1/b"})


async def test_long_and_odd_texts_are_cut_and_made_sendable(ran: HttpBench) -> None:
    rewrite(ran, "v1/a", {}, response="x" * 30_000, error="half \ud800 a pair", label={"deep": [1]})
    item = (await ran.get("/api/v1/samples", job_id="v1/a", limit=1))["items"][0]
    assert (len(item["response"]), item["cut"], item["error"]) == (20_000, ["response"], "half ? a pair")
    assert item["label"] == {"deep": [1]}


async def test_a_job_that_never_ran_has_no_samples(http: HttpBench) -> None:
    http.bench.ledger.create_jobs(target(5), ["a"], now=1.0)
    error = (await http.get("/api/v1/samples", 404, job_id="v5/a"))["error"]
    assert (error["code"], error["value"]) == ("no_samples", "v5/a")
    error = (await http.get("/api/v1/samples", 404, job_id="v6/a"))["error"]
    assert (error["code"], error["value"]) == ("no_such_job", "v6/a")


async def test_the_lane_has_syncs_jobs_and_engines(ran: HttpBench) -> None:
    activity = ran.api.activity
    activity.engine_changed("eval-0", "ready", "")
    activity.load_began("eval-0", "2")
    activity.engine_changed("eval-0", "ready", "")
    lane = await ran.get("/api/v1/lane")
    assert [(sync["policy_version"], sync["outcome"]) for sync in lane["syncs"]] == [
        (1, "sealed"),
        (2, "sealed"),
    ]
    assert [job["job_id"] for job in lane["jobs"]] == ["v1/a", "v1/b", "v2/a", "v2/b", "c1/a"]
    assert all(job["begin"] <= job["end"] for job in lane["jobs"])
    (engine,) = lane["engines"]
    assert (engine["name"], [span["kind"] for span in engine["spans"]]) == ("eval-0", ["load"])
    assert (await ran.get("/api/v1/lane", since=0, until=1))["jobs"] == []
