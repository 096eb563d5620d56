"""`live-eval results DIR --compare V1 V2` and its filters, over a real ledger and sample files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from live_eval import cli
from live_eval.evaluation.sample import Sample
from live_eval.evaluation.sample_log import SampleLog
from live_eval.reasons import JobStatus
from live_eval.results.ledger import Ledger
from live_eval.targets import CheckpointTarget, PolicyTarget, Target, job_id


def finish(root: Path, ledger: Ledger, target: Target, rewards: list[float], *, move: bool = False) -> None:
    """A succeeded job on dataset rev with one sample a row."""
    name = job_id(target, "rev")
    path = root / "samples" / target.key / "rev.jsonl"
    log = SampleLog(path)
    for number, reward in enumerate(rewards):
        log.append(
            Sample(
                dataset="rev", row_id=f"r{number}", sample=0, attempt=1, prompt=f"turn\nround {number}",
                label="l", status="scored", reward=reward,
            )
        )  # fmt: skip
    log.close()
    ledger.create_jobs(target, ["rev"], now=2.0)
    ledger.start(name, now=3.0)
    score = sum(rewards) / len(rewards)
    ledger.finish(
        msgspec.structs.replace(
            ledger.outcome(name, status=JobStatus.SUCCEEDED, reason="completed", now=9.0),
            score=score,
            metrics={"score": score, "score/low": 0.1, "score/high": 0.9},
            samples_path=str(Path("/moved") / target.key / "rev.jsonl" if move else path),
        )
    )


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    with Ledger.open(tmp_path / "ledger.sqlite", run_id="run", now=1.0) as ledger:
        finish(tmp_path, ledger, PolicyTarget(policy_version=1), [0.0] * 20 + [1.0] * 2)
        finish(tmp_path, ledger, PolicyTarget(policy_version=3), [1.0] * 21 + [0.0], move=True)
        finish(tmp_path, ledger, CheckpointTarget(path="/c", number=1), [1.0] * 22)
        ledger.create_jobs(PolicyTarget(policy_version=4), ["rev"], now=4.0)
    return tmp_path


def results(run_dir: Path, *words: str) -> int:
    return cli.main(["results", str(run_dir), *words])


def test_the_table_has_the_difference_and_the_flipped_prompts(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert results(run_dir, "--compare", "1", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "before: 1    after: 3    difference: after - before"
    assert lines[2].split()[:5] == ["rev", "0.091", "0.955", "▲", "+0.864"]
    assert lines[2].split()[-3:] == ["22", "20", "1"]
    assert "Bonett and Price" in lines[3]
    flips = [line.split() for line in lines[7:]]
    assert [row[-6:] for row in (flips[0], flips[-1])] == [
        ["gained", "0/1", "1/1", "turn", "round", "0"],
        ["lost", "1/1", "0/1", "turn", "round", "21"],
    ]
    assert len(flips) == 21


def test_json_has_the_same(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert results(run_dir, "--compare", "1", "c1", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["datasets"]
    assert (found["dataset"], found["prompts"], found["clear"]) == ("rev", 22, True)
    assert (len(found["gained"]), found["lost"]) == (20, [])
    assert found["low"] < found["difference"] == pytest.approx(20 / 22)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--compare", "1", "9"], "9 was never evaluated"),
        (["--compare", "1", "4"], "4 has no score: rev waiting"),
        (["--compare", "1", "3", "--versions", "1:3"], "leave the other options out"),
        (["--dataset", "nope"], "datasets of this run: rev"),
        (["--status", "done"], "is none of waiting"),
        (["--export", "x.xls"], "give a name that ends in"),
    ],
)
def test_what_cannot_be_shown_says_why(
    run_dir: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert results(run_dir, *words) != 0
    assert message in capsys.readouterr().err


def test_filters_and_exports_go_together(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert results(run_dir, "--versions", "2:", "--export", str(run_dir / "out.csv")) == 0
    assert "1 results written" in capsys.readouterr().err
    assert results(run_dir, "--status", "succeeded", "--json") == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [job["job_id"] for job in report["jobs"]] == ["v1/rev", "v3/rev", "c1/rev"]
    assert results(run_dir, "--versions", "3") == 0
    shown = capsys.readouterr().out
    assert "0.100..0.900" in shown and "1 job: 1 succeeded" in shown
