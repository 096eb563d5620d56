"""The W&B sink against the real wandb, offline, as read back from its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from live_eval.reasons import JobStatus
from live_eval.results.ledger import Ledger
from live_eval.results.rows import VersionEvent
from live_eval.results.sinks import SinkPump
from live_eval.results.wandb_readback import ReadRun, read_run, result_ids
from live_eval.results.wandb_sink import WandbConfig, WandbSink, wandb_run_id
from live_eval.targets import CheckpointTarget, PolicyTarget, Target, job_id

DATASETS = ["rev", "gsm8k/test.v2 hard"]
SCORES = {5: 0.4, 7: 0.9, 6: 0.6, 8: 0.8}


def policy(version: int) -> PolicyTarget:
    return PolicyTarget(policy_version=version, rollout_id=version - 1, train_step=10 * version)


def end(ledger: Ledger, target: Target, status: JobStatus = JobStatus.SUCCEEDED) -> None:
    ledger.create_jobs(target, DATASETS, now=2.0)
    version = target.policy_version if isinstance(target, PolicyTarget) else 0
    for dataset in DATASETS:
        name = job_id(target, dataset)
        ledger.start(name, now=3.0)
        result = ledger.outcome(name, status=status, reason="completed", now=9.0)
        if status is JobStatus.SUCCEEDED:
            score = SCORES.get(version, 0.3)
            result = msgspec.structs.replace(
                result, score=score, metrics={"pass@1": score, "reward/len": 2.0}
            )
        ledger.finish(msgspec.structs.replace(result, n_expected=8, n_scored=8, weight_digest="ab"))


def live(root: Path, targets: Sequence[tuple[Target, JobStatus]], *, group: str = "job") -> str:
    """One life of a service: end these jobs, in this order; the W&B run's id."""
    with Ledger.open(root / "ledger.sqlite", run_id="run") as ledger:
        run_id = wandb_run_id(ledger)
        config = WandbConfig(dir=root, project="proj", group=group, config={"trainer_run": "abc"})
        pump = SinkPump(ledger, [WandbSink(config, run_id=run_id, datasets=DATASETS)])
        pump.start()
        for target, status in targets:
            end(ledger, target, status)
            pump.wake()
            # Each result is a log call of its own, as in a service, where minutes lie between them.
            assert pump.drain(60.0) == {}
        assert pump.close(60.0) == {}
        return run_id


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions 5, 7, 6, a checkpoint of step 2 and one of no step, others cancelled; restart; 8."""
    root = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        # What a trainer in the same job may have left in the environment.
        patch.setenv("WANDB_RUN_ID", "trainer")
        patch.setenv("WANDB_RESUME", "must")
        patch.setenv("WANDB_DIR", str(root / "elsewhere"))
        patch.setenv("WANDB_MODE", "online")
        patch.setenv("WANDB_RUN_GROUP", "other")
        patch.setenv("WANDB_DISABLED", "true")
        done = JobStatus.SUCCEEDED
        first = live(
            root,
            [
                (policy(5), done),
                (policy(7), done),
                (policy(6), done),
                (CheckpointTarget(path="/ckpt/step_2", number=1, train_step=2), done),
                (CheckpointTarget(path="/ckpt/final", number=2), done),
                (policy(9), JobStatus.CANCELLED),
            ],
        )
        assert live(root, [(policy(8), done)]) == first
    return root


@pytest.fixture(scope="module")
def run(run_directory: Path) -> ReadRun:
    (path,) = {path.name.rpartition("-")[2] for path in (run_directory / "wandb").glob("offline-run-*")}
    return read_run(run_directory / "wandb", path)


def test_rows_and_results_of_the_ledger_agree_one_to_one(run_directory: Path, run: ReadRun) -> None:
    with Ledger.open(run_directory / "ledger.sqlite") as ledger:
        results = {result.result_id: result for result in ledger.results()}
    assert sorted(result_ids(run.rows)) == sorted(results)
    assert len(run.rows) == len(results) == 14
    keys = {"rev": "rev", "gsm8k/test.v2 hard": "gsm8k_test_v2_hard"}
    for row in run.rows:
        (name,) = result_ids([row])
        result = results[name]
        family = next(key.partition("/")[0] for key in row if key.endswith("/result_id"))
        scores = {key: value for key, value in row.items() if key.endswith(("/score", "/pass@1"))}
        if result.status == "succeeded":
            base = f"{family}/{keys[result.dataset]}"
            assert scores == {f"{base}/score": result.score, f"{base}/pass@1": result.score}
            assert row[f"{base}/n_scored"] == result.n_scored
        else:
            assert scores == {}
        assert row[f"{family}/status"] == result.status
        assert row.get("live_eval/policy_version") == result.policy_version
        assert row.get(f"{family}/train_step") == result.train_step
        assert row.get("live_eval/rollout_id") == result.rollout_id
        assert row[f"{family}/finished_at"] == result.finished_at


def test_every_logged_key_has_its_step_metric_in_the_same_row(run: ReadRun) -> None:
    for row in run.rows:
        for key in row:
            if key.startswith("_"):
                continue
            step = run.step_metric(key)
            assert (step in row) or (step == "" and any(m.step_metric == key for m in run.metrics)), key


def test_the_metric_definitions_are_those_of_the_three_families(run: ReadRun) -> None:
    assert {(metric.glob, metric.step_metric) for metric in run.metrics if metric.glob} == {
        ("live_eval/*", "live_eval/policy_version"),
        ("checkpoint_eval/*", "checkpoint_eval/train_step"),
        ("checkpoint_eval_by_number/*", "checkpoint_eval_by_number/number"),
    }
    assert {metric.name for metric in run.metrics if metric.hidden} == {
        metric.step_metric for metric in run.metrics if metric.glob
    }


def test_a_late_older_version_and_a_restart_lose_no_row(run: ReadRun) -> None:
    versions = [row["live_eval/policy_version"] for row in run.rows if "live_eval/rev/score" in row]
    assert versions == [5, 7, 6, 8]
    assert len(run.directories) == 2


def test_the_summary_is_of_the_newest_version_not_of_the_last_arrival(run: ReadRun) -> None:
    assert run.summary["live_eval/policy_version"] == 8
    assert run.summary["live_eval/rev/score"] == 0.8
    assert (run.summary["live_eval/rev/best_score"], run.summary["live_eval/rev/best_step"]) == (0.9, 7)
    assert run.summary["checkpoint_eval/rev/score"] == 0.3
    assert run.summary["live_eval/cancelled_total"] == 2


def test_it_is_a_run_of_its_own_in_the_trainers_group(run: ReadRun) -> None:
    assert run.run_id != "trainer"
    assert (run.project, run.group) == ("proj", "job")
    assert run.config["trainer_run"] == "abc"
    assert run.config["live_eval"]["run_id"] == "run"
    assert run.config["live_eval"]["datasets"] == {"rev": "rev", "gsm8k_test_v2_hard": "gsm8k/test.v2 hard"}


def test_a_life_with_nothing_new_adds_no_row(run_directory: Path, run: ReadRun) -> None:
    live(run_directory, [])
    again = read_run(run_directory / "wandb", run.run_id)
    assert again.rows == run.rows
    assert len(again.directories) == 3


def test_a_discarded_sync_is_counted_in_the_summary(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite", run_id="run") as ledger:
        ledger.record_version(VersionEvent(key="sync-1", state="discarded", reason="incomplete"))
    run_id = live(tmp_path, [])
    assert read_run(tmp_path / "wandb", run_id).summary["live_eval/discarded_total"] == 1
