"""Many samples a call, slime's way to call, rules by row, and a reward model behind an address."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from live_eval.errors import RewardError
from live_eval.evaluation.datasets import EvalSetConfig
from live_eval.evaluation.grading_pool import GradingPool
from live_eval.evaluation.rewards import FunctionGrader, Grader, RewardSample, make_grader


def sample(label: Any = "x", response: str = "x", *, number: int = 0, **changes: Any) -> RewardSample:
    values: dict[str, Any] = {
        "dataset": "set", "row_id": "r1", "sample": number, "prompt": "p", "response": response,
        "label": label,
    }  # fmt: skip
    return RewardSample(**{**values, **changes})


async def rewards(grader: Grader, labels: list[Any]) -> list[Any]:
    """What became of each: its reward, or the error's text."""
    samples = [sample(label, number=number) for number, label in enumerate(labels)]
    found = await asyncio.gather(*map(grader.grade, samples), return_exceptions=True)
    return [str(each) if isinstance(each, BaseException) else each.reward for each in found]


def many(pool: GradingPool, function: str, mode: Any, size: int = 4) -> FunctionGrader:
    return FunctionGrader(f"fakes.graders.{function}", pool=pool, mode=mode, batch_size=size)


async def test_a_batch_is_full_or_waits_a_moment_and_every_sample_gets_its_own_reward() -> None:
    async with GradingPool(num_workers=1) as pool:
        assert await rewards(many(pool, "batch", "batch"), list(range(10))) == [4.0] * 8 + [2.0] * 2
        answers = await rewards(many(pool, "batch_async", "batch"), ["x", "y", "x"])
        assert answers == [1.0, 0.0, 1.0]


async def test_a_fault_of_one_is_one_samples_and_a_fault_of_the_call_is_everyones() -> None:
    async with GradingPool(num_workers=1) as pool:
        found = await rewards(many(pool, "batch", "batch"), [1, "text", 1])
        assert found[0] == found[2] == 3.0
        assert "sample 1: fakes.graders.batch: TypeError: the reward is 'text'" in found[1]
        found = await rewards(many(pool, "batch", "batch"), ["huge", 1])
        assert "the reward is inf" in found[0] and found[1] == 1.0
        found = await rewards(many(pool, "batch", "batch"), [1, "raise"])
        assert all("KeyError: 'no such thing'" in text for text in found)
        found = await rewards(many(pool, "one_too_few", "batch"), [1, 2])
        assert all("it returned 1 rewards for 2 samples" in text for text in found)


async def test_concurrent_calls_run_at_one_time_each_with_its_deadline() -> None:
    async with GradingPool(num_workers=1, deadline_s=2.0) as pool:
        began = time.monotonic()
        found = await rewards(many(pool, "together", "concurrent", 8), [1, 2, "loop", "raise", 5])
        assert time.monotonic() - began < 40
    assert found[0] == found[1] == found[4] == 3.0
    assert "sample 2: fakes.graders.together: did not end within 2 s" in found[2]
    assert "sample 3: fakes.graders.together: KeyError" in found[3]


async def test_a_call_that_nobody_waits_for_is_given_up_and_the_pool_goes_on() -> None:
    async with GradingPool(num_workers=1, deadline_s=30.0) as pool:
        grader = many(pool, "together", "concurrent", 2)
        waiting = [asyncio.create_task(grader.grade(sample("loop", number=n))) for n in range(2)]
        await asyncio.sleep(0.3)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert (await rewards(many(pool, "equal_async", "concurrent", 2), ["x"])) == [1.0]


async def test_a_function_may_be_called_as_slime_calls_it(tmp_path: Path) -> None:
    config = EvalSetConfig(name="set", path=tmp_path, reward="fakes.graders.as_slime")
    async with GradingPool(num_workers=1) as pool:
        grader = make_grader(config, pool)
        assert (await grader.grade(sample(3, metadata={"level": 3}))).reward == 1.0
        assert (await grader.grade(sample(3, metadata={"level": 4}))).reward == 0.0


async def test_a_rows_own_rule_comes_first_where_the_dataset_lets_it(tmp_path: Path) -> None:
    metadata = {"rm_type": "math"}
    async with GradingPool(num_workers=1) as pool:
        for by_row, reward in ((True, 1.0), (False, 0.0)):
            config = EvalSetConfig(name="set", path=tmp_path, reward_by_row=by_row)
            boxed = sample("1/2", r"\boxed{0.5}", metadata=metadata)
            assert (await make_grader(config, pool).grade(boxed)).reward == reward
        config = EvalSetConfig(name="set", path=tmp_path, reward_by_row=True, reward_key="score")
        by_row = sample("3", "Answer: 3", metadata={"rm_type": "dapo"})
        assert (await make_grader(config, pool).grade(by_row)).rewards == {"score": 1.0, "acc": 1.0}
        config = replace(config, reward_key="len", row_function="fakes.graders.by_field")
        grader = make_grader(config, pool)
        by_row = sample("x", num_tokens=3, metadata={"rm_type": "one of its own"})
        assert [(await grader.grade(each)).reward for each in (by_row, sample("x", "y"))] == [3.0, 0.0]
        config = EvalSetConfig(name="set", path=tmp_path, reward="dapo", reward_key="score")
        grade = await make_grader(config, pool).grade(sample("3", "Answer: 4"))
        assert (grade.reward, grade.rewards) == (-1.0, {"score": -1.0, "acc": 0.0})


# --- a reward model ---------------------------------------------------------------------


class RewardModel(BaseHTTPRequestHandler):
    """Answers by the label; `busy` fails so many times first."""

    busy: ClassVar[int] = 0
    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        RewardModel.asked.append(body)
        if RewardModel.busy:
            RewardModel.busy -= 1
            self.answer(503, b"busy")
        elif body["label"] == "bad":
            self.answer(422, b"what is that")
        elif body["label"] == "text":
            self.answer(200, b"<html>")
        elif body["label"] == "moved":
            self.answer(302, b"elsewhere")
        elif body["label"] == "huge":
            with contextlib.suppress(ConnectionError):  # it is cut off in the middle
                self.answer(200, b" " * (64 << 20))
        else:
            self.answer(200, json.dumps(float(body["response"] == body["label"])).encode())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    RewardModel.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), RewardModel)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/rm"
    server.shutdown()
    server.server_close()
    thread.join()


def remote(address: str, pool: GradingPool, tmp_path: Path) -> Grader:
    config = EvalSetConfig(name="set", path=tmp_path, reward="remote_rm", reward_url=address)
    return make_grader(config, pool)


async def test_a_reward_model_is_asked_again_while_it_is_busy_and_never_makes_an_answer_wrong(
    address: str, tmp_path: Path
) -> None:
    RewardModel.busy = 1
    async with GradingPool(num_workers=1, deadline_s=20.0) as pool:
        labels = ["x", "y", "bad", "text", "moved", "huge"]
        found = await rewards(remote(address, pool, tmp_path), labels)
    assert found[:2] == [1.0, 0.0]
    assert "answered status 422: what is that" in found[2]
    assert "answered no JSON: '<html>'" in found[3]
    assert "answered status 302: elsewhere" in found[4]
    assert "answered with more than 1048576 bytes" in found[5]
    assert {"prompt", "response", "label"} == set(RewardModel.asked[0])
    assert len(RewardModel.asked) == len(labels) + 1


async def test_one_that_is_not_there_is_an_error_that_says_so_within_the_deadline(tmp_path: Path) -> None:
    # It gives up after 1.5 s; the rest is for a machine that has more to do.
    async with GradingPool(num_workers=1, deadline_s=3.0) as pool:
        grader = remote("http://127.0.0.1:9/rm", pool, tmp_path)
        with pytest.raises(RewardError, match="gave no reward, last: ConnectError"):
            await grader.grade(sample())
