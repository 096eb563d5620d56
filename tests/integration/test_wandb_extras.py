"""Tables, alerts and the saved view, against the real wandb and wandb-workspaces, offline."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from live_eval.cli import main
from live_eval.config import ServiceConfig, StoreSettings
from live_eval.errors import ConfigError, LiveEvalError
from live_eval.evaluation.datasets import EvalSetConfig
from live_eval.evaluation.sample import Sample
from live_eval.evaluation.sample_log import SampleLog
from live_eval.results import wandb_view
from live_eval.results.ledger import Ledger
from live_eval.results.rows import VersionEvent
from live_eval.results.sinks import SinkPump
from live_eval.results.wandb_extras import RESULT_COLUMNS, RESULTS_KEY, SAMPLE_COLUMNS
from live_eval.results.wandb_readback import ReadRun, read_run, result_ids
from live_eval.results.wandb_sink import WandbConfig, WandbSink, wandb_run_id
from live_eval.scheduling.config import SchedulerConfig
from live_eval.targets import PolicyTarget

DATASETS = ["rev", "gsm8k/test"]


def sample(row: int, number: int) -> Sample:
    return Sample(
        dataset="rev",
        row_id=f"r{row}",
        sample=number,
        attempt=1,
        prompt=f"rev {row}",
        label=["a", row],
        response="x" * 20_000,
        reward=0.5,
        status="scored",
    )


def finish(ledger: Ledger, version: int, *, status: str = "succeeded", samples: Path | None = None) -> None:
    at = 10.0 * version
    ledger.record_version(
        VersionEvent(key=f"sealed/v{version}", state="sealed", policy_version=version, at=at)
    )
    (row,) = ledger.create_jobs(PolicyTarget(policy_version=version), ["rev"], now=at)
    ledger.start(row.job_id, now=at)
    reason = "completed" if status == "succeeded" else "engine_failed"
    result = ledger.outcome(row.job_id, status=status, reason=reason, now=at + 15.0)
    score = version / 10 if status == "succeeded" else None
    counts = {"n_expected": 5, "n_scored": 3, "n_errored": 1, "n_aborted": 1}
    measured = {"score": score, **counts, "detail": "why"}
    ledger.finish(msgspec.structs.replace(result, **measured, samples_path=str(samples or "")))


def live(root: Path, first: int, last: int) -> None:
    """A life of a service that ends these versions; the even ones fail, and a sync is discarded."""
    config = WandbConfig(dir=root, sample_rows=3, alerts=("failed", "discarded"))
    with Ledger.open(root / "ledger.sqlite", run_id="run") as ledger:
        pump = SinkPump(ledger, [WandbSink(config, run_id=wandb_run_id(ledger), datasets=DATASETS)])
        pump.start()
        for version in range(first, last + 1):
            finish(
                ledger,
                version,
                status="succeeded" if version % 2 else "failed",
                samples=root / "samples" / "rev.jsonl",
            )
            pump.wake()
            assert pump.drain(60.0) == {}
        event = VersionEvent(key=f"d{first}", state="discarded", reason="incomplete", weight_version=first)
        ledger.record_version(event)
        assert pump.close(60.0) == {}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two lives: versions 1 to 3, then 4 and 5."""
    root = tmp_path_factory.mktemp("run")
    log = SampleLog(root / "samples" / "rev.jsonl")
    for row in (2, 1):
        for number in (1, 0):
            log.append(sample(row, number))
    log.close()
    live(root, 1, 3)
    live(root, 4, 5)
    return root


@pytest.fixture(scope="module")
def run(root: Path) -> ReadRun:
    with Ledger.open(root / "ledger.sqlite") as ledger:
        return read_run(root / "wandb", wandb_run_id(ledger))


def table(run: ReadRun, values: dict[str, Any], key: str) -> dict[str, Any]:
    """The columns and rows of a logged table."""
    path = values[f"{key}.path"] if f"{key}.path" in values else values[key]["path"]
    (file,) = [each / "files" / path for each in run.directories if (each / "files" / path).is_file()]
    return json.loads(file.read_text())


def test_the_table_of_results_has_every_result_of_every_life(run: ReadRun) -> None:
    found = table(run, run.summary, RESULTS_KEY)
    assert tuple(found["columns"]) == RESULT_COLUMNS
    rows = [dict(zip(found["columns"], row, strict=True)) for row in found["data"]]
    assert [(row["policy_version"], row["status"], row["score"]) for row in rows] == [
        (1, "succeeded", 0.1),
        (2, "failed", None),
        (3, "succeeded", 0.3),
        (4, "failed", None),
        (5, "succeeded", 0.5),
    ]
    assert {row["detail"] for row in rows} == {"why"}
    counts = ("n_expected", "n_scored", "n_errored", "n_aborted")
    assert {tuple(row[name] for name in counts) for row in rows} == {(5, 3, 1, 1)}, "with every score"


def test_tables_make_no_row_of_their_own(run: ReadRun) -> None:
    assert result_ids(run.rows) == [f"run/v{version}/rev" for version in range(1, 6)]
    assert len(run.rows) == 5


def test_samples_are_in_the_row_of_a_version_that_was_scored(run: ReadRun) -> None:
    for row in run.rows:
        if row["live_eval/status"] != "succeeded":
            assert not any("samples" in key for key in row)
            continue
        found = table(run, row, "live_eval/rev/samples")
        assert tuple(found["columns"]) == SAMPLE_COLUMNS
        rows = [dict(zip(found["columns"], cells, strict=True)) for cells in found["data"]]
        assert [(each["row_id"], each["sample"]) for each in rows] == [("r1", 0), ("r1", 1), ("r2", 0)]
        assert rows[0]["label"] == "['a', 1]" and len(rows[0]["response"]) == 10_000


def test_each_alert_is_raised_once(run: ReadRun) -> None:
    assert [(alert["title"], alert["text"], alert["level"]) for alert in run.alerts] == [
        ("live-eval: v2/rev failed", "engine_failed: why", "ERROR"),
        ("live-eval: weight version 1 discarded", "incomplete", "WARN"),
        ("live-eval: v4/rev failed", "engine_failed: why", "ERROR"),
        ("live-eval: weight version 4 discarded", "incomplete", "WARN"),
    ]


def test_how_far_behind_a_score_is(run: ReadRun) -> None:
    scored = [row for row in run.rows if "live_eval/rev/score" in row]
    assert [row["live_eval/lag_s"] for row in scored] == [15.0] * 3
    assert [row["live_eval/lag_versions"] for row in scored] == [0, 0, 0]
    assert [row["live_eval/rev/coverage"] for row in scored] == [0.6] * 3


def test_nothing_is_left_outside_of_the_run_directory(root: Path, run: ReadRun) -> None:
    assert len(run.directories) == 2
    assert {path.name for path in root.iterdir() if path.is_dir()} == {"wandb", "samples"}


def panels_of(made: dict[str, Any]) -> list[dict[str, Any]]:
    sections = made["spec"]["section"]["panelBankConfig"]["sections"]
    return [panel for section in sections for panel in section["panels"]]


def test_every_line_of_the_view_is_drawn_by_its_familys_step_and_is_logged(
    run: ReadRun,
) -> None:
    made = wandb_view.spec(wandb_view.view(entity="us", project="p", datasets=DATASETS, group="job"))
    lines = [panel["config"] for panel in panels_of(made) if panel["viewType"] == "Run History Line Plot"]
    assert len(lines) == 10
    for config in lines:
        for key in config["metrics"]:
            assert run.step_metric(key) == config["xAxis"], key
    drawn = {key for config in lines for key in config["metrics"]}
    logged = {key for row in run.rows for key in row if key.startswith("live_eval/")}
    assert {key for key in drawn if key.startswith("live_eval/rev/")} - logged <= {
        f"live_eval/rev/{end}" for end in wandb_view.INTERVAL
    }
    assert {"live_eval/lag_s", "live_eval/lag_versions", "live_eval/discarded_total"} <= drawn & logged
    assert "live_eval/gsm8k_test/score" in drawn
    assert RESULTS_KEY in json.dumps(made)
    (runs,) = made["spec"]["section"]["runSets"]
    assert [(each["key"]["name"], each["value"]) for each in runs["filters"]["filters"]] == [("group", "job")]


def test_the_command_prints_the_view_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ServiceConfig(
        run_id="r",
        run_dir=tmp_path,
        base=tmp_path,
        datasets=(EvalSetConfig(name="rev", path=tmp_path / "rev.jsonl"),),
        scheduler=SchedulerConfig(datasets=("rev",)),
        store=StoreSettings(max_bytes=1),
        wandb=WandbConfig(dir=tmp_path, project="mine", entity="us", group="g"),
    ).save(tmp_path / "config.json")
    assert main(["view", str(tmp_path), "--print"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["entity"], made["project"], made["displayName"]) == ("us", "mine", f"{wandb_view.NAME}, g")


def test_a_view_that_wandb_does_not_take_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    made = wandb_view.view(entity="us", project="p", datasets=["rev"])

    def refuse(*_: object) -> None:
        raise ValueError("permission denied")

    monkeypatch.setattr("wandb_workspaces.workspaces.internal.upsert_view2", refuse)
    with pytest.raises(LiveEvalError, match="did not take the view: permission denied"):
        wandb_view.save(made)


def test_an_alert_about_something_unknown_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\['sad'\] is none of"):
        WandbConfig(dir=tmp_path, alerts=("sad",))


def test_a_table_or_an_alert_that_wandb_refuses_costs_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """wandb as it is, but for these two."""
    patched = (
        "import wandb\n"
        "def refuse(*_, **__): raise wandb.Error('refused')\n"
        "wandb.Table = wandb.sdk.wandb_run.Run.alert = refuse\n"
        "from live_eval.results import wandb_worker\n"
        "raise SystemExit(wandb_worker.main())\n"
    )
    (tmp_path / "patched_worker.py").write_text(patched)
    config = WandbConfig(dir=tmp_path, sample_rows=3, alerts=("failed",))
    command = (sys.executable, str(tmp_path / "patched_worker.py"))
    SampleLog(tmp_path / "samples" / "rev.jsonl", [sample(1, 0)]).close()
    with Ledger.open(tmp_path / "ledger.sqlite", run_id="run") as ledger:
        finish(ledger, 1, status="failed")
        finish(ledger, 3, samples=tmp_path / "samples" / "rev.jsonl")
        sink = WandbSink(config, run_id=wandb_run_id(ledger), datasets=DATASETS, command=command)
        pump = SinkPump(ledger, [sink])
        pump.start()
        assert pump.close(60.0) == {}
        run = read_run(tmp_path / "wandb", wandb_run_id(ledger))
    assert result_ids(run.rows) == ["run/v1/rev", "run/v3/rev"]
    assert run.alerts == [] and RESULTS_KEY not in run.summary
    log = (tmp_path / "wandb" / "live-eval-worker.log").read_text()
    assert "no table of samples" in log and "a table or an alert is not told: Error: refused" in log
