"""Rules of what W&B is told."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from live_eval.reasons import JobStatus
from live_eval.results.keys import DatasetKeys
from live_eval.results.rows import OutboxRow, VersionEvent
from live_eval.results.wandb_rows import DEFINITIONS, WandbRows
from live_eval.results.wandb_sink import worker_env
from live_eval.targets import CheckpointTarget
from protocol.messages import JobResult

if TYPE_CHECKING:
    from live_eval.results.ledger import Ledger

Finish = Callable[..., JobResult]


def rows_of(outbox: Sequence[OutboxRow]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    rows = WandbRows(DatasetKeys(["rev"]))
    return [row for row in map(rows.add, outbox) if row is not None], rows.summary()


def test_every_row_carries_the_step_metric_of_all_its_keys(ledger: Ledger, finish: Finish) -> None:
    finish(5, "gsm8k/test.v2", metrics={"pass@1": 0.5, "reward/len": 3.0})
    finish(CheckpointTarget(path="/c/step_2", number=1, train_step=2))
    finish(CheckpointTarget(path="/c/final", number=2))
    finish(6, status=JobStatus.CANCELLED, reason="newer_version")
    rows, _ = rows_of(ledger.outbox())
    globs = {d.name.removesuffix("*"): d.step_metric for d in DEFINITIONS if d.name.endswith("*")}
    for row in rows:
        steps = {step for prefix, step in globs.items() for key in row if key.startswith(prefix)}
        assert len(steps) == 1 and steps <= set(row)
        assert all(any(key.startswith(prefix) for prefix in globs) for key in row)
        assert not any("." in key for key in row)
    assert [row.get("live_eval/policy_version") for row in rows] == [5, None, None, 6]
    assert rows[1]["checkpoint_eval/train_step"] == 2
    assert rows[2]["checkpoint_eval_by_number/number"] == 2
    assert rows[0]["live_eval/gsm8k_test_v2/score"] == 0.5
    assert rows[0]["live_eval/gsm8k_test_v2/pass@1"] == 0.5
    assert rows[0]["live_eval/gsm8k_test_v2/reward_len"] == 3.0


def test_a_row_has_the_interval_and_the_differences_of_its_score(ledger: Ledger, finish: Finish) -> None:
    metrics = {"score/low": 0.4, "score/high": 0.6, "vs_previous/diff": 0.1, "vs_best/version": 3.0}
    finish(5, metrics=metrics)
    (row,), summary = rows_of(ledger.outbox())
    for name, value in metrics.items():
        key = f"live_eval/rev/{name.replace('/', '_')}"
        assert row[key] == summary[key] == value


@pytest.mark.parametrize("status", [s for s in JobStatus if s.terminal and s is not JobStatus.SUCCEEDED])
def test_an_evaluation_that_did_not_succeed_has_a_row_without_a_score(
    ledger: Ledger, finish: Finish, status: JobStatus
) -> None:
    finish(5, status=status, reason="user")
    (row,), summary = rows_of(ledger.outbox())
    assert row["live_eval/status"] == status.value
    assert row["live_eval/result_id"] == "run/v5/rev"
    assert row[f"live_eval/{status.value}_total"] == 1
    assert not any("rev/" in key for key in (set(row) | set(summary)) - {"live_eval/result_id"})
    assert "live_eval/policy_version" not in summary


def test_the_summary_is_by_version_whatever_the_order_of_arrival(ledger: Ledger, finish: Finish) -> None:
    for version, score in ((5, 0.4), (7, 0.7), (6, 0.9), (8, 0.9)):
        finish(version, score=score)
    finish(CheckpointTarget(path="/c/step_2", number=1, train_step=2), score=1.0)
    outbox = ledger.outbox()
    _, expected = rows_of(outbox)
    assert expected["live_eval/rev/score"] == 0.9
    assert expected["live_eval/rev/last_step"] == expected["live_eval/policy_version"] == 8
    assert (expected["live_eval/rev/best_score"], expected["live_eval/rev/best_step"]) == (0.9, 6)
    assert expected["checkpoint_eval/rev/score"] == 1.0
    for seed in range(20):
        shuffled = random.Random(seed).sample(outbox, len(outbox))
        assert rows_of(shuffled)[1] == expected


def test_counters_ride_along(ledger: Ledger, finish: Finish) -> None:
    finish(5, status=JobStatus.SUPERSEDED, reason="newer_version")
    ledger.record_version(VersionEvent(key="x", state="discarded", reason="incomplete"))
    finish(6)
    finish(7, status=JobStatus.CANCELLED, reason="newer_version")
    rows, summary = rows_of(ledger.outbox())
    assert [row["live_eval/superseded_total"] for row in rows] == [1, 1, 1]
    assert [row["live_eval/discarded_total"] for row in rows] == [0, 1, 1]
    assert [row["live_eval/cancelled_total"] for row in rows] == [0, 0, 1]
    assert summary["live_eval/succeeded_total"] == 1


def test_a_metric_never_hides_another_value(ledger: Ledger, finish: Finish) -> None:
    finish(5, score=0.5, metrics={"score": 0.5, "n_scored": 1.0, "a/b": 2.0, "a.b": 3.0})
    (row,), _ = rows_of(ledger.outbox())
    assert row["live_eval/rev/score"] == 0.5
    assert row["live_eval/rev/n_scored"] == 8
    assert row["live_eval/rev/n_scored_"] == 1.0
    assert sorted(v for k, v in row.items() if k.startswith("live_eval/rev/a_b")) == [2.0, 3.0]


def test_a_score_says_how_far_the_policy_had_gone_on_and_what_its_sync_cost(
    ledger: Ledger, finish: Finish
) -> None:
    for version, at in ((5, 1.0), (6, 2.0), (7, 3.0), (8, 1e12)):
        event = VersionEvent(
            key=f"sealed/v{version}",
            state="sealed",
            policy_version=version,
            weight_version=version - 4,
            at=at,
            held_s=version / 20,
        )
        ledger.record_version(event)
    result = finish(5)
    rows = WandbRows(DatasetKeys(["rev"]))
    (row,) = [row for row in map(rows.add, ledger.outbox()) if row is not None]
    assert result.finished_at is not None
    assert row["live_eval/lag_versions"] == 2, "a version that is sealed later counts too"
    assert row["live_eval/lag_s"] == result.finished_at - 1.0
    assert row["live_eval/held_s"] == 0.25
    assert row["live_eval/rev/coverage"] == 1.0


def test_what_is_not_known_of_a_version_is_not_said(ledger: Ledger, finish: Finish) -> None:
    finish(5)
    (row,), _ = rows_of(ledger.outbox())
    assert not {"live_eval/lag_versions", "live_eval/lag_s", "live_eval/held_s"} & set(row)


def test_nothing_of_a_trainers_run_reaches_the_process_that_has_wandb(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    foreign = {"WANDB_RUN_ID": "t", "WANDB_RESUME": "must", "WANDB_SWEEP_ID": "s", "WANDB_SERVICE": "3-tcp-1"}
    for name, value in (foreign | {"WANDB_API_KEY": "k", "WANDB_BASE_URL": "http://w"}).items():
        monkeypatch.setenv(name, value)
    found = {name: value for name, value in worker_env().items() if name.startswith("WANDB_")}
    assert found.keys() & foreign.keys() == set()
    assert (found["WANDB_API_KEY"], found["WANDB_BASE_URL"]) == ("k", "http://w"), "it is the user's account"
