"""A later attempt at a job takes up what stands of the earlier ones, and asks for the rest, once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.source import FakeSource, dies
from hypothesis import given
from hypothesis import strategies as st

from live_eval.errors import EngineDied
from live_eval.evaluation.datasets import EvalRow, EvalSet, EvalSetConfig
from live_eval.evaluation.job import JobSpec, Progress, RunLimits, sample_file
from live_eval.evaluation.rewards import ExactMatch
from live_eval.evaluation.runner import JobRun
from live_eval.evaluation.sample import Sample
from live_eval.evaluation.sample_log import SampleLog, encode_sample, partial_of, read_samples
from live_eval.evaluation.taking_up import taken_up
from live_eval.reasons import EndReason, JobStatus
from live_eval.targets import PolicyTarget

NUM_ROWS = 10
LIMITS = RunLimits(chunk_size=1, num_in_flight=1, max_engine_retries=0)


class Job:
    """One job of version 7 over rows a0, a1, ..., and its attempts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.num_attempts = 0
        self.told: list[int] = []

    def path(self, attempt: int) -> Path:
        return self._root / sample_file("v7/up", attempt=attempt)

    def attempt(self, source: FakeSource, *, weights: str = "digest", **config: Any) -> JobRun:
        """The next attempt."""
        self.num_attempts += 1
        self.told.clear()
        rows = tuple(
            EvalRow(row_id=f"r{i}", line=i + 1, prompt=f"a{i}", label=f"A{i}") for i in range(NUM_ROWS)
        )
        return JobRun(
            JobSpec(
                job_id="v7/up",
                target=PolicyTarget(policy_version=7),
                label="7",
                samples_path=self.path(self.num_attempts),
                attempt=self.num_attempts,
                earlier=tuple(self.path(number) for number in range(1, self.num_attempts)),
                weights=weights,
            ),
            EvalSet(config=EvalSetConfig(name="up", path=self._root / "up.jsonl", **config), rows=rows),
            source,
            grader=ExactMatch(),
            limits=LIMITS,
            on_progress=self._tell,
        )

    def cut(self, num_lines: int, *, tail: bytes = b"") -> None:
        """What a kill leaves of the last attempt's file."""
        lines = self.path(self.num_attempts).read_bytes().splitlines(keepends=True)
        self.path(self.num_attempts).write_bytes(b"".join(lines[:num_lines]) + tail)

    def _tell(self, progress: Progress) -> None:
        self.told.append(progress.num_done)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


async def complete(job: Job, **settings: Any) -> FakeSource:
    """Run an attempt to its end; what was asked."""
    source = FakeSource()
    run = job.attempt(source, **settings)
    outcome = await run.result()
    assert (outcome.status, outcome.score) == (JobStatus.SUCCEEDED, 1.0)
    assert outcome.counts.n_scored == NUM_ROWS * settings.get("n", 1)
    assert outcome.num_taken_up == outcome.counts.n_expected - len(source.asked)
    assert outcome.engine_labels == ("7",)
    return source


def rows_of(source: FakeSource) -> list[str]:
    return [request.request_id.split("/")[2] for request in source.asked]


@pytest.mark.parametrize("num_done", [0, 1, 4, 9, 10])
async def test_what_was_done_before_a_kill_is_not_asked_again(job: Job, num_done: int) -> None:
    await complete(job)
    job.cut(num_done, tail=b'{"dataset": "up", "row_id": "r')
    source = await complete(job)
    assert rows_of(source) == [f"r{i}" for i in range(num_done, NUM_ROWS)]
    samples = {sample.row_id: sample for sample in read_samples(job.path(2))}
    assert [samples[f"r{i}"].run for i in range(NUM_ROWS)] == [1] * num_done + [2] * (NUM_ROWS - num_done)
    assert job.told[0] == num_done and job.told[-1] == NUM_ROWS


async def test_any_number_of_kills_asks_for_each_sample_once_beyond_those_in_flight(job: Job) -> None:
    asked: list[str] = []
    for num_done in (3, 5, 5, 8):
        asked += rows_of(await complete(job))[: num_done - len(asked)]
        job.cut(num_done)
    asked += rows_of(await complete(job))
    assert Counter(asked) == Counter(f"r{i}" for i in range(NUM_ROWS))
    files = [read_samples(job.path(number)) for number in range(1, 6)]
    made = {(each.row_id, each.sample): each.request_id for each in files[-1]}
    assert len(made) == NUM_ROWS
    for sample in (each for file in files for each in file):
        assert sample.request_id == made[sample.row_id, sample.sample], "a sample was scored twice"


async def test_a_kill_while_the_earlier_samples_are_copied_loses_none(job: Job) -> None:
    await complete(job)
    job.cut(6)
    job.num_attempts = 2  # its file was never whole
    partial_of(job.path(2)).write_bytes(job.path(1).read_bytes()[:200])
    source = await complete(job)
    assert rows_of(source) == ["r6", "r7", "r8", "r9"]
    assert not partial_of(job.path(2)).exists()


async def test_several_samples_of_a_row_are_told_apart(job: Job) -> None:
    await complete(job, n=3)
    job.cut(4)
    source = await complete(job, n=3)
    assert rows_of(source)[:3] == ["r1", "r1", "r2"]
    assert len(source.asked) == 3 * NUM_ROWS - 4


async def test_an_attempt_whose_engine_was_lost_is_taken_up_too(job: Job) -> None:
    source = FakeSource(script=[None, None, None, dies(EngineDied("gone"))])
    outcome = await job.attempt(source).result()
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, EndReason.ENGINE_FAILED)
    again = await complete(job)
    assert rows_of(again) == [f"r{i}" for i in range(3, NUM_ROWS)]


@pytest.mark.parametrize("settings", [{"weights": "another"}, {"weights": ""}, {"pass_threshold": 0.5}])
async def test_what_was_made_with_other_weights_or_settings_is_asked_again(
    job: Job, settings: dict[str, Any]
) -> None:
    await complete(job)
    source = await complete(job, **settings)
    assert len(source.asked) == NUM_ROWS


async def test_without_a_name_for_the_weights_nothing_is_taken_up(job: Job) -> None:
    await complete(job, weights="")
    source = await complete(job, weights="")
    assert len(source.asked) == NUM_ROWS


async def test_a_file_that_is_damaged_costs_only_another_asking(job: Job) -> None:
    await complete(job)
    job.path(1).write_bytes(b"nonsense\n" + job.path(1).read_bytes())
    assert len((await complete(job)).asked) == NUM_ROWS


def answered(**changes: Any) -> Sample:
    sample = Sample(
        dataset="up",
        row_id="r1",
        sample=0,
        attempt=1,
        prompt="p",
        label="l",
        response="x",
        reward=1.0,
        status="scored",
        finish_reason="stop",
        engine_label="7",
        basis="basis",
    )
    return replace(sample, **changes)


@pytest.mark.parametrize(
    ("changes", "stands"),
    [
        ({}, True),
        ({"status": "errored", "error": "the reward function raised", "reward": None}, True),
        ({"status": "errored", "finish_reason": "refused", "engine_label": "", "reward": None}, True),
        ({"status": "errored", "finish_reason": "", "engine_label": "", "error": "lost"}, False),
        ({"status": "errored", "engine_label": "6", "error": "on other weights"}, False),
        ({"status": "aborted", "reward": None}, False),
        ({"engine_label": "6"}, False),
        ({"basis": "other"}, False),
        ({"row_id": "r99"}, False),
        ({"sample": 1}, False),
    ],
)
def test_what_stands(tmp_path: Path, changes: dict[str, Any], stands: bool) -> None:
    path = tmp_path / "v7" / "up.jsonl"
    path.parent.mkdir()
    path.write_bytes(encode_sample(answered(**changes)))
    found = taken_up([path], basis="basis", label="7", expected={("r1", 0)})
    assert bool(found) is stands


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["scored", "aborted"])), max_size=8), max_size=4
    )
)
def test_the_first_that_stands_counts_in_any_history(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[int, str]]]
) -> None:
    root = tmp_path_factory.mktemp("history")
    paths, wanted = [], {}
    for number, lines in enumerate(files):
        paths.append(root / f"{number}.jsonl")
        made = [
            answered(row_id=f"r{row}", status=status, request_id=f"{number}.{position}")
            for position, (row, status) in enumerate(lines)
        ]
        paths[-1].write_bytes(b"".join(map(encode_sample, made)))
        for sample in made:
            if sample.status == "scored":
                wanted.setdefault(sample.row_id, sample.request_id)
    expected = {(f"r{row}", 0) for row in range(6)}
    found = taken_up(paths, basis="basis", label="7", expected=expected)
    assert {sample.row_id: sample.request_id for sample in found} == wanted
    assert len(found) == len(wanted)


def test_each_sample_is_with_the_system_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "v7" / "up.jsonl"
    log = SampleLog(path, [answered()])
    log.append(answered(row_id="r2", response="x" * 300_000))
    assert [sample.row_id for sample in read_samples(path)] == ["r1", "r2"]
    log.close()


def test_a_disk_that_is_full_leaves_the_files_of_earlier_attempts_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    path = tmp_path / "v7" / "up@2.jsonl"
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        SampleLog(path, [answered()])
    assert not path.exists()
