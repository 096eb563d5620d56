"""A service without a trainer over the real engine: submitted to over HTTP, followed, cancelled, killed."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.job_engine import real_engine
from fakes.serve_cli import Serving, events, live_eval, serving, write_rows
from fakes.tiny_model import write_tiny_model

pytestmark = pytest.mark.engine

NUM_ROWS = 16
MANY = 40
"""Answers a prompt of the dataset that takes seconds."""
CHAT_TEMPLATE = (
    "{% for each in messages %}<{{ each.role }}>"
    "{{ each.content | upper if shout else each.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CANCEL_S = 2.0
"""A second on a quiet machine."""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two that answer differently."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for step in (1, 2):
        write_tiny_model(folder / f"step_{step}", seed=step)
    return folder


@pytest.fixture(scope="module")
def eval_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """slime's YAML: a short dataset and a long one."""
    folder = tmp_path_factory.mktemp("data")
    data = write_rows(folder / "a.jsonl", NUM_ROWS)
    config = {
        "eval": {
            "defaults": {"label_key": "label", "max_response_len": 16, "temperature": 0.0},
            "datasets": [
                {"name": "short", "path": str(data)},
                {"name": "long", "path": str(data), "n_samples_per_eval_prompt": MANY, "temperature": 1.0},
            ],
        }
    }
    path = folder / "eval.yaml"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory,
    job_engine_url: str,
    job_base: Path,
    checkpoints: Path,
    eval_config: Path,
) -> Iterator[Serving]:
    options = ("--engine-address", job_engine_url, "--device", "cpu", "--base", job_base)
    out = tmp_path_factory.mktemp("serve") / "run"
    with serving(out, *options, "--eval-config", eval_config, "--checkpoint-root", checkpoints) as made:
        yield made


def submit(service: Serving, path: Path, *datasets: str) -> str:
    (job_id,) = service.post("/checkpoints", {"path": str(path), "datasets": list(datasets)})["job_ids"]
    return job_id


def test_a_submitted_checkpoint_is_followed_from_progress_to_result(
    service: Serving, checkpoints: Path
) -> None:
    with events(service.url) as stream:
        job_id = submit(service, checkpoints / "step_1", "short")
        seen: dict[str, list[Any]] = {}
        for _, kind, data in stream:
            seen.setdefault(kind, []).append(data)
            if kind == "result":
                break
    states = [data["status"] for data in seen["job"] if data["job_id"] == job_id]
    assert states == ["waiting", "running", "succeeded"]
    (result,) = seen["result"]
    assert (result["job_id"], result["n_scored"], result["engine_versions"]) == (
        job_id,
        NUM_ROWS,
        ["ckpt-c1"],
    )
    assert result["interval"]["low"] <= result["score"] <= result["interval"]["high"]
    assert {data["state"] for data in seen["engine"]} == {"pinned"}
    page = service.get("/samples", job_id=job_id, limit=3)
    assert (page["total"], [item["row_id"] for item in page["items"]]) == (NUM_ROWS, ["r0", "r1", "r10"])


def test_two_checkpoints_are_compared_sample_by_sample(service: Serving, checkpoints: Path) -> None:
    names = [submit(service, checkpoints / f"step_{step}", "short") for step in (1, 2)]
    for name in names:
        wait(service, name, "succeeded")
    found = service.get("/compare", left=names[0], right=names[1])
    assert found["summary"]["paired"] == NUM_ROWS
    assert any(item["left"]["response"] != item["right"]["response"] for item in found["items"])


def test_a_running_job_is_cancelled_within_a_second_and_the_engine_goes_on(
    service: Serving, checkpoints: Path
) -> None:
    job_id = submit(service, checkpoints / "step_1", "long")
    with events(service.url) as stream:
        told = next(data for _, kind, data in stream if kind == "progress" and data["num_done"] > 0)
        assert told["estimate"]["low"] <= told["estimate"]["score"] <= told["estimate"]["high"]
        began = time.monotonic()
        assert service.post("/cancel", {"job_id": job_id})["status"] == "running"
        ended = next(data for _, kind, data in stream if kind == "job" and data["job_id"] == job_id)
        took_s = time.monotonic() - began
    assert (ended["status"], ended["reason"], ended["score"]) == ("cancelled", "user", None)
    assert took_s < CANCEL_S
    assert 0 < ended["num_done"] < ended["num_expected"]
    wait(service, submit(service, checkpoints / "step_2", "short"), "succeeded")


def test_a_service_that_is_killed_goes_on_with_the_job_and_who_follows_is_told(
    service: Serving, checkpoints: Path
) -> None:
    job_id = submit(service, checkpoints / "step_2", "long")
    with events(service.url) as stream:
        last_id, _, _ = next(event for event in stream if event[1] == "progress" and event[2]["num_done"] > 0)
    service.kill()
    service.start()
    with events(service.url, **{"last-event-id": last_id}) as stream:
        assert [next(stream)[1] for _ in range(2)] == ["hello", "reset"]
    job = wait(service, job_id, "succeeded")
    assert [each["outcome"] for each in job["attempts"]] == ["service_restarted", "succeeded"]
    assert job["result"]["n_scored"] == NUM_ROWS * MANY
    lane = service.get("/lane")
    assert {span["target"] for span in lane["engines"][0]["spans"]} >= {"c1", job["target"]}


def test_ctrl_c_ends_it_and_leaves_no_socket_and_no_address(service: Serving) -> None:
    assert service.stop() == 0
    assert not (service.out / "http.url").exists()
    assert not (service.out / "service.sock").exists()
    assert "Traceback" not in service.log


def test_eval_scores_checkpoints_on_texts_and_chats_and_does_only_what_is_left_when_run_again(
    job_engine_url: str, checkpoints: Path, eval_config: Path, tmp_path: Path
) -> None:
    for step in (1, 2):
        (checkpoints / f"step_{step}" / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    chats = [
        {
            "id": f"r{n}",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": str(n)}],
        }
        for n in range(4)
    ]
    (tmp_path / "chat.jsonl").write_text("".join(json.dumps(row | {"label": "x"}) + "\n" for row in chats))
    config = json.loads(eval_config.read_text())
    short = config["eval"]["datasets"][0]
    chat = {"name": "chat", "path": str(tmp_path / "chat.jsonl"), "input_key": "messages"}
    chat |= {"apply_chat_template": True, "apply_chat_template_kwargs": {"shout": True}}
    config["eval"]["datasets"] = [short, chat]
    (tmp_path / "eval.yaml").write_text(json.dumps(config))
    command = ("eval", "--checkpoint", checkpoints / "step_1", checkpoints / "step_2", "--json")
    options = ("--eval-config", tmp_path / "eval.yaml", "--engine-address", job_engine_url, "--device", "cpu")
    options = (*options, "--out", tmp_path / "out")
    report = json.loads(live_eval(*command, *options).stdout)
    assert [(job["job_id"], job["status"]) for job in report["jobs"]] == [
        (f"c{number}/{name}", "succeeded") for number in (1, 2) for name in ("short", "chat")
    ]
    answers = {
        step: list(map(json.loads, (tmp_path / f"out/samples/{step}/chat.jsonl").read_text().splitlines()))
        for step in ("c1", "c2")
    }
    for number, sample in enumerate(sorted(answers["c1"], key=lambda sample: sample["row_id"])):
        assert sample["prompt"] == f"<system>BE BRIEF.<user>{number}<assistant>"
        assert (sample["status"], sample["engine_label"]) == ("scored", "ckpt-c1")
    texts = [{sample["row_id"]: sample["response"] for sample in each} for each in answers.values()]
    assert texts[0] != texts[1]
    again = json.loads(live_eval(*command, *options).stdout)
    assert again["jobs"] == report["jobs"]


@pytest.fixture(scope="module")
def second_engine_url(job_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with real_engine(job_base, tmp_path_factory.mktemp("engine") / "second.log") as process:
        yield process.url


def test_two_checkpoints_at_once_each_on_an_engine_of_its_own_score_as_they_do_alone(
    job_engine_url: str,
    second_engine_url: str,
    job_base: Path,
    checkpoints: Path,
    eval_config: Path,
    tmp_path: Path,
) -> None:
    options = ("--engine-address", job_engine_url, second_engine_url, "--device", "cpu", "--base", job_base)
    options = (*options, "--engines-per-eval", "1", "--eval-config", eval_config)
    with serving(tmp_path / "run", *options, "--checkpoint-root", checkpoints) as service:
        began = [submit_all(service, checkpoints / f"step_{step}") for step in (1, 2)]
        jobs = [wait(service, name, "succeeded") for names in began for name in names]
        assert {job["job_id"] for job in jobs} == {"c1/short", "c1/long", "c2/short", "c2/long"}
        ends = {
            target: (
                min(job["result"]["started_at"] for job in jobs if job["target"] == target),
                max(job["result"]["finished_at"] for job in jobs if job["target"] == target),
            )
            for target in ("c1", "c2")
        }
        assert max(begin for begin, _ in ends.values()) < min(end for _, end in ends.values())
        shares = {target: engines_of(service, f"{target}/long") for target in ends}
        assert [len(engines) for engines in shares.values()] == [1, 1]
        assert shares["c1"] != shares["c2"]
        # The whole group evaluates nothing else now: each alone, on whichever engine is free.
        alone = {
            step: wait(service, submit(service, checkpoints / f"step_{step}", "short"), "succeeded")
            for step in (1, 2)
        }
        for step, job in alone.items():
            assert answers(service, job["job_id"]) == answers(service, f"c{step}/short")
        assert answers(service, "c1/short") != answers(service, "c2/short")
        lane = {each["name"]: each["spans"] for each in service.get("/lane")["engines"]}
        for spans in lane.values():
            ordered = sorted(spans, key=lambda span: span["begin"])
            for before, after in itertools.pairwise(ordered):
                assert before["end"] is not None
                assert before["end"] <= after["begin"]
        assert service.stop() == 0


def submit_all(service: Serving, path: Path) -> list[str]:
    return service.post("/checkpoints", {"path": str(path)})["job_ids"]


def items(service: Serving, job_id: str) -> list[Any]:
    return service.get("/samples", job_id=job_id, limit=100)["items"]


def engines_of(service: Serving, job_id: str) -> set[tuple[str, str]]:
    """Engine and label of the samples."""
    return {(item["engine"], item["engine_label"]) for item in items(service, job_id)}


def answers(service: Serving, job_id: str) -> dict[str, str]:
    return {item["row_id"]: item["response"] for item in items(service, job_id)}


def wait(service: Serving, job_id: str, status: str) -> Any:
    """The job when it has ended, as this."""
    deadline = time.monotonic() + 120
    while (job := service.get(f"/jobs/{job_id}"))["status"] in ("waiting", "running"):
        assert time.monotonic() < deadline, service.log
        time.sleep(0.1)
    assert job["status"] == status, job
    return job
