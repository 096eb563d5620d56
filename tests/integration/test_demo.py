"""The main job as a user runs it: `live-eval demo`, both transports, real engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from live_eval.results.reader import LedgerReader
from live_eval.results.wandb_readback import read_run, result_ids
from live_eval.rundir import RunDir
from live_eval.store.store import VersionStore

pytestmark = [pytest.mark.engine, pytest.mark.timeout(420)]

NUM_VERSIONS = 3


def live_eval(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    command = [sys.executable, "-m", "live_eval.cli", *arguments]
    env = {**os.environ, "COLUMNS": "160"}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=400, check=False)


class DemoRun:
    """One finished demo and what it wrote."""

    def __init__(self, out: Path, transport: str, checkpoint: Path | None) -> None:
        arguments = ["--out", str(out), "--versions", str(NUM_VERSIONS), "--transport", transport]
        arguments += ["--json", str(out.with_suffix(".json"))]
        if checkpoint is not None:
            arguments += ["--eval-checkpoint", str(checkpoint)]
        self.run_dir = RunDir(out)
        self.done = live_eval("demo", *arguments)
        assert self.done.returncode == 0, self.done.stdout + self.done.stderr
        self.report: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())


@pytest.fixture(scope="module")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    return DemoRun(tmp_path_factory.mktemp("nccl") / "run", "nccl", None)


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory, nccl: DemoRun) -> DemoRun:
    """With a version of the other run as a checkpoint to evaluate."""
    checkpoint = nccl.run_dir.store / "versions" / "v000003"
    return DemoRun(tmp_path_factory.mktemp("ray") / "run", "ray", checkpoint)


@pytest.fixture(params=["nccl", "ray"])
def demo(request: pytest.FixtureRequest) -> DemoRun:
    return request.getfixturevalue(request.param)


def test_every_sync_is_a_version_and_every_version_has_its_jobs(demo: DemoRun) -> None:
    versions = demo.report["versions"]
    assert [version["policy_version"] for version in versions] == [1, 2, 3]
    assert [version["rollout_id"] for version in versions] == [None, 0, 1]
    assert [version["train_step"] for version in versions] == [0, 34, 68]
    assert len({version["digest"] for version in versions}) == NUM_VERSIONS
    assert demo.report["discarded"] == []
    jobs = [each for each in demo.report["evals"] if each["policy_version"] is not None]
    assert sorted(each["job_id"] for each in jobs) == sorted(
        f"v{version}/{dataset}" for version in (1, 2, 3) for dataset in ("rev", "sort")
    )
    ended = {each["status"] for each in jobs}
    assert ended <= {"succeeded", "superseded"}


def test_the_last_version_is_scored_on_its_own_weights(demo: DemoRun) -> None:
    last = [each for each in demo.report["evals"] if each["policy_version"] == NUM_VERSIONS]
    assert [each["status"] for each in last] == ["succeeded", "succeeded"]
    for each in last:
        assert each["engine_versions"] == [NUM_VERSIONS]
        assert (each["n_expected"], each["n_scored"], each["n_errored"], each["n_aborted"]) == (64, 64, 0, 0)
        assert each["train_step"] == 68
    assert {each["dataset"]: each["score"] for each in last}["sort"] > 0.2


def test_the_trainer_was_never_refused_a_sync(demo: DemoRun) -> None:
    syncs = demo.report["trainer"]
    assert [sync["weight_version"] for sync in syncs] == [1, 2, 3]
    assert all(sync["published"] and sync["held_s"] >= 0 for sync in syncs)


def test_ledger_wandb_and_results_file_agree_one_to_one(demo: DemoRun) -> None:
    with LedgerReader.open_readonly(demo.run_dir.ledger) as ledger:
        results = {result.result_id: result for result in ledger.results()}
        run_id = str(ledger.get("wandb/run_id"))
        assert ledger.unfinished() == []
    lines = (demo.run_dir.root / demo.report["results"]).read_text().splitlines()
    assert [json.loads(line)["result_id"] for line in lines] == list(results)
    run = read_run((demo.run_dir.root / demo.report["wandb_dir"]).parent, run_id)
    rows = [row for row in run.rows if "live_eval/result_id" in row]
    assert sorted(result_ids(run.rows)) == sorted(results)
    assert run.step_metric("live_eval/rev/score") == "live_eval/policy_version"
    for row in rows:
        result = results[row["live_eval/result_id"]]
        if result.score is not None and result.policy_version is not None:
            assert row["live_eval/policy_version"] == result.policy_version
            assert row[f"live_eval/{result.dataset}/score"] == result.score


def test_sealed_versions_hold_what_their_manifests_say(demo: DemoRun) -> None:
    with VersionStore.open(demo.run_dir.store, max_bytes=1 << 30, keep_newest=10) as store:
        for record in store.sealed():
            assert store.verify(record.policy_version).digest == record.digest


def test_a_named_checkpoint_is_scored_beside_the_versions(nccl: DemoRun, ray: DemoRun) -> None:
    jobs = [each for each in ray.report["evals"] if each["checkpoint"]]
    assert [each["status"] for each in jobs] == ["succeeded", "succeeded"]
    assert {each["train_step"] for each in jobs} == {68}, "the version's own, from its manifest"
    there = {each["dataset"]: each["score"] for each in nccl.report["evals"] if each["policy_version"] == 3}
    assert {each["dataset"]: each["score"] for each in jobs} == there


def test_one_seed_trains_the_same_weights_over_both_transports(nccl: DemoRun, ray: DemoRun) -> None:
    digests = [[version["digest"] for version in run.report["versions"]] for run in (nccl, ray)]
    assert digests[0] == digests[1]


def test_results_and_versions_show_the_run(demo: DemoRun) -> None:
    table = live_eval("results", str(demo.run_dir.root))
    assert table.returncode == 0
    assert "succeeded" in table.stdout
    report = json.loads(live_eval("results", str(demo.run_dir.root), "--json").stdout)
    assert len(report["jobs"]) == len(demo.report["evals"])
    versions = live_eval("versions", str(demo.run_dir.root))
    assert versions.returncode == 0
    assert demo.report["versions"][-1]["digest"][:12] in versions.stdout


def test_nothing_of_the_demo_is_left_running(demo: DemoRun) -> None:
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(demo.run_dir.root) not in running
