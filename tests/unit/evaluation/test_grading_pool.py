"""Real worker processes, and functions that do to them whatever a reward function can."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from live_eval.errors import ConfigError, RewardError
from live_eval.evaluation.datasets import EvalSetConfig
from live_eval.evaluation.grading_pool import GradingPool
from live_eval.evaluation.rewards import ExactMatch, FunctionGrader, Grade, RewardSample, make_grader


def sample(label: Any = "x", response: str = "x", **changes: Any) -> RewardSample:
    values: dict[str, Any] = {
        "dataset": "set",
        "row_id": "r1",
        "sample": 2,
        "prompt": "p",
        "response": response,
        "label": label,
    }
    return RewardSample(**{**values, **changes})


def workers() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # gone meanwhile, or dead and not reaped yet
            if "grading_worker" in " ".join(process.cmdline()):
                found.append(process)
    return found


@pytest.mark.parametrize("function", ["equal", "equal_async", "uses_alarm"])
async def test_right_and_wrong_answers_are_told_apart(function: str) -> None:
    async with GradingPool(num_workers=1) as pool:
        assert await pool.call(f"fakes.graders.{function}", sample("x", "x")) == 1.0
        assert await pool.call(f"fakes.graders.{function}", sample("x", "y")) == 0.0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("loop", r"did not end within 1 s; it was killed"),
        ("raise", r"KeyError: 'no such thing' \(.*graders.py:\d+\)"),
        ("exit", "exited with code 3"),
        ("sys_exit", "exited with code 4"),
        ("kill", "was killed by SIGKILL"),
        ("none", "None.* is not a number|NoneType.*not a number"),
        ("text", "not a number"),
        ("nan", "nan, which is not a score"),
        ("list", "not a number"),
    ],
)
async def test_a_fault_is_an_error_that_names_the_sample_and_the_next_one_is_graded(
    fault: str, message: str
) -> None:
    async with GradingPool(num_workers=1, deadline_s=1.0) as pool:
        with pytest.raises(RewardError, match=f"dataset 'set', row r1, sample 2: .*({message})"):
            await pool.call("fakes.graders.faulty", sample(fault))
        assert await pool.call("fakes.graders.faulty", sample("fine")) == 1.0


async def test_a_loop_on_sample_three_of_five_costs_that_sample_only() -> None:
    async with GradingPool(num_workers=2, deadline_s=1.0) as pool:
        calls = [
            pool.call("fakes.graders.faulty", sample("loop" if number == 3 else "fine"))
            for number in range(1, 6)
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(result, RewardError) for result in results] == [False, False, True, False, False]


async def test_after_kills_as_many_workers_as_before_run_at_once(tmp_path: Path) -> None:
    async with GradingPool(num_workers=2, deadline_s=30) as pool:
        for _ in range(3):
            with pytest.raises(RewardError):
                await pool.call("fakes.graders.faulty", sample("kill"))
        together = sample(fields={"place": str(tmp_path), "others": 2})
        results = await asyncio.gather(*(pool.call("fakes.graders.meets", together) for _ in range(2)))
    assert results == [1.0, 1.0]


async def test_no_more_workers_than_allowed_are_started_and_they_are_used_again() -> None:
    async with GradingPool(num_workers=2) as pool:
        pids = await asyncio.gather(*(pool.call("fakes.graders.tells_pid", sample()) for _ in range(20)))
        assert len(set(pids)) <= 2
        assert len(workers()) == len(set(pids))
    assert workers() == []


async def test_an_alarm_that_a_function_leaves_behind_does_not_reach_the_next_sample() -> None:
    async with GradingPool(num_workers=1) as pool:
        assert await pool.call("fakes.graders.leaves_alarm", sample()) == 1.0
        assert await pool.call("fakes.graders.slow", sample()) == 1.0


async def test_what_a_function_prints_and_reads_does_not_reach_the_pipe(tmp_path: Path) -> None:
    log = tmp_path / "graders.log"
    async with GradingPool(num_workers=1, log_path=log) as pool:
        assert await pool.call("fakes.graders.prints_and_reads", sample()) == 1.0
    assert log.read_text() == '{"value": 0.0}\n' * 2


async def test_a_process_that_a_function_forks_answers_for_no_sample() -> None:
    async with GradingPool(num_workers=1) as pool:
        for number in range(6):
            assert await pool.call("fakes.graders.forks", sample("returns", row_id=str(number))) == number
            await asyncio.sleep(0.02)  # for an answer that nobody asked for


async def test_a_forked_process_keeps_what_it_opened_itself() -> None:
    async with GradingPool(num_workers=1) as pool:
        assert await pool.call("fakes.graders.forks_again", sample()) == 1.0


async def test_a_process_that_a_function_left_holds_nobody_up(tmp_path: Path) -> None:
    begun, child = time.monotonic(), tmp_path / "child"
    async with GradingPool(num_workers=1, deadline_s=0.5) as pool:
        with pytest.raises(RewardError, match=r"within 0\.5 s; it was killed"):
            await pool.call("fakes.graders.forks", sample("loop", fields={"child": str(child)}))
        assert await pool.call("fakes.graders.equal", sample()) == 1.0
    took = time.monotonic() - begun
    os.kill(int(child.read_text()), signal.SIGKILL)
    assert took < 4


async def test_where_memory_runs_out_workers_go_first() -> None:
    async with GradingPool(num_workers=1) as pool:
        assert await pool.call("fakes.graders.oom_score", sample()) == 1000


async def test_text_of_any_kind_and_size_reaches_the_function() -> None:
    text = "\u2028\ud800\x00\n" + "x" * 3_000_000
    async with GradingPool(num_workers=1) as pool:
        assert await pool.call("fakes.graders.equal", sample(text, text)) == 1.0


async def test_a_cancelled_call_leaves_no_stale_answer_for_the_next() -> None:
    async with GradingPool(num_workers=1) as pool:
        await pool.check("fakes.graders.slow")
        call = asyncio.create_task(pool.call("fakes.graders.slow", sample()))
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await pool.call("fakes.graders.equal", sample("x", "y")) == 0.0


async def test_a_worker_that_died_while_idle_is_replaced() -> None:
    async with GradingPool(num_workers=1) as pool:
        pid = await pool.call("fakes.graders.tells_pid", sample())
        assert isinstance(pid, float)
        os.kill(int(pid), signal.SIGKILL)
        (worker,) = pool._idle
        async with asyncio.timeout(20):
            while worker.usable:  # noqa: ASYNC110 - the event loop hears of it after the process is reaped
                await asyncio.sleep(0.01)
        assert workers() == []
        assert await pool.call("fakes.graders.equal", sample()) == 1.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("no_such_module.fn", "ModuleNotFoundError"),
        ("fakes.graders.no_such_function", "AttributeError"),
        ("fakes.graders.not_a_function", "is a int, not a function"),
    ],
)
async def test_a_path_that_leads_nowhere_is_found_before_the_run(function: str, message: str) -> None:
    async with GradingPool(num_workers=1) as pool:
        with pytest.raises(ConfigError, match=f"reward {function}: .*{message}"):
            await pool.check(function)


async def test_importing_has_a_deadline_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "takes_long_to_import.py").write_text("import time; time.sleep(1.2)\ndef fn(s): return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    async with GradingPool(num_workers=1, deadline_s=1.0) as pool:
        assert await pool.call("takes_long_to_import.fn", sample()) == 1.0
    async with GradingPool(num_workers=1, import_deadline_s=0.3) as pool:
        with pytest.raises(ConfigError, match=r"did not import within 0\.3 s"):
            await pool.check("takes_long_to_import.fn")


def test_workers_die_with_a_killed_parent_even_in_the_middle_of_a_loop() -> None:
    script = textwrap.dedent(
        """
        import asyncio, sys
        sys.path[:0] = sys.argv[1:]
        from live_eval.evaluation.grading_pool import GradingPool
        from live_eval.evaluation.rewards import RewardSample

        async def main():
            pool = GradingPool(num_workers=1, deadline_s=600)
            s = dict(dataset="d", row_id="r", sample=0, prompt="p", response="r")
            pid = await pool.call("fakes.graders.tells_pid", RewardSample(label="x", **s))
            print(int(pid), flush=True)
            await pool.call("fakes.graders.faulty", RewardSample(label="loop", **s))

        asyncio.run(main())
        """
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", script, str(root), str(root / "tests")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        time.sleep(0.2)
        parent.kill()
    worker.wait(timeout=30)


# --- graders ----------------------------------------------------------------------------


@pytest.mark.parametrize(("label", "answer"), [(72, " 72\n"), ("72", "72"), (72.0, "72"), (True, "true")])
async def test_exact_match_compares_by_the_label_rule(label: object, answer: str) -> None:
    assert await ExactMatch().grade(sample(label, answer)) == Grade(reward=1.0)
    assert await ExactMatch().grade(sample(label, answer + "1")) == Grade(reward=0.0)


async def test_the_reward_key_picks_the_reward_and_all_numbers_are_kept() -> None:
    async with GradingPool(num_workers=1) as pool:
        grader = FunctionGrader("fakes.graders.by_field", pool=pool, reward_key="acc")
        grade = await grader.grade(sample("x", "x", num_tokens=3))
        assert grade == Grade(reward=1.0, rewards={"acc": 1.0, "len": 3.0, "ok": 1.0})


@pytest.mark.parametrize(
    ("value", "key", "message"),
    [
        ({"acc": 1}, None, "returned a dict with .*acc.*: set reward_key"),
        ({"fmt": 1}, "acc", "lacks reward_key 'acc'"),
        ({"acc": None}, "acc", "lacks reward_key 'acc'"),
        (1, "acc", "returned the number 1.0, but reward_key is 'acc'"),
    ],
)
async def test_a_result_that_does_not_fit_the_key_is_an_error_naming_dataset_and_sample(
    value: Any, key: str | None, message: str
) -> None:
    async with GradingPool(num_workers=1) as pool:
        grader = FunctionGrader("fakes.graders.returns_label", pool=pool, reward_key=key)
        with pytest.raises(RewardError, match=f"dataset 'set', row r1, sample 2: .*{message}"):
            await grader.grade(sample(value))


async def test_numpy_numbers_are_rewards() -> None:
    async with GradingPool(num_workers=1) as pool:
        assert await FunctionGrader("fakes.graders.numpy_number", pool=pool).grade(sample()) == Grade(
            reward=0.5
        )


async def test_the_configuration_decides_the_grader(tmp_path: Path) -> None:
    async with GradingPool() as pool:
        assert isinstance(make_grader(EvalSetConfig(name="a", path=tmp_path), pool), ExactMatch)
        function = EvalSetConfig(name="a", path=tmp_path, reward="fakes.graders.equal")
        assert isinstance(make_grader(function, pool), FunctionGrader)


@pytest.mark.parametrize("bad", [{"num_workers": 0}, {"deadline_s": 0}, {"import_deadline_s": -1}])
def test_a_pool_without_workers_or_time_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        GradingPool(**bad)
