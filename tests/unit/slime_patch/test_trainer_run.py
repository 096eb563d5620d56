"""Rows for the trainer's own run: slime's keys and steps."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from live_eval.results.rows import OutboxRow, VersionEvent
from protocol.messages import JobResult
from slime_patch.trainer_run import TrainerRun, eval_row, eval_step

ARGS = Namespace(
    wandb_always_use_train_step=False, rollout_batch_size=8, n_samples_per_prompt=4, global_batch_size=16,
    log_passrate=False,
)  # fmt: skip


def result(version: int | None = 3, *, status: str = "succeeded", **values: Any) -> JobResult:
    fields: dict[str, Any] = {"rollout_id": 4, "score": 0.5 if status == "succeeded" else None, **values}
    return JobResult(
        result_id=f"r/v{version}/aime", job_id=f"v{version}/aime", dataset="aime", status=status,
        policy_version=version, checkpoint="" if version else "/c", **fields,
    )  # fmt: skip


def test_a_score_is_slimes_key_at_slimes_step() -> None:
    metrics = {"score": 0.5, "truncated": 0.25, "response_tokens": 7.0, "pass@1": 0.5}
    assert eval_row(ARGS, result(metrics=metrics)) == {
        "eval/step": 4,
        "eval/aime": 0.5,
        "eval/aime/policy_version": 3,
        "eval/aime-truncated_ratio": 0.25,
        "eval/aime/truncated_ratio": 0.25,
        "eval/aime/response_len/mean": 7.0,
    }


def test_pass_rates_come_where_slime_would_log_them() -> None:
    row = eval_row(Namespace(**{**vars(ARGS), "log_passrate": True}), result(metrics={"pass@1": 0.5}))
    assert row is not None and row["eval/aime-pass@1"] == 0.5


def test_what_slimes_log_function_made_is_taken_as_it_is() -> None:
    row = eval_row(ARGS, result(metrics={"slime/eval/aime/response_len/max": 9.0, "truncated": 0.1}))
    assert row == {
        "eval/step": 4, "eval/aime": 0.5, "eval/aime/policy_version": 3, "eval/aime/response_len/max": 9.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "other", [result(None, score=0.5), result(status="failed"), result(status="cancelled")]
)
def test_checkpoints_and_what_has_no_score_stay_out(other: JobResult) -> None:
    assert eval_row(ARGS, other) is None


def test_the_first_push_is_at_step_0_and_train_steps_are_counted_if_asked() -> None:
    assert eval_step(ARGS, None) == 0
    assert eval_step(Namespace(**{**vars(ARGS), "wandb_always_use_train_step": True}), 4) == 8


def test_rows_of_an_earlier_training_are_in_another_run() -> None:
    logged: list[dict[str, Any]] = []
    run = TrainerRun(
        ARGS, datasets=["aime"], attach=False, known=2, log=lambda _args, row, _step: logged.append(row)
    )
    for seq in (1, 2, 3):
        run.take(OutboxRow(seq=seq, key=f"k{seq}", result=result(seq)))
    assert [row["eval/aime/policy_version"] for row in logged] == [3]


def event(seq: int, state: str, reason: str = "", **values: Any) -> OutboxRow:
    return OutboxRow(
        seq=seq, key=f"k{seq}", event=VersionEvent(key=f"k{seq}", state=state, reason=reason, **values)
    )


def test_what_each_update_cost_and_what_became_of_all_is_by_slimes_rollout_step() -> None:
    logged: list[tuple[dict[str, Any], str]] = []
    run = TrainerRun(
        ARGS, datasets=["aime"], attach=False, known=1,
        log=lambda _args, row, step: logged.append((row, step)),
    )  # fmt: skip
    run.take(event(1, "sealed", held_s=9.0))  # of an earlier training
    run.take(event(2, "sealed", held_s=0.5))
    run.take(event(3, "discarded", "publisher_deadline", rollout_id=0, held_s=5.0))
    run.take(event(4, "dropped", "store_full", rollout_id=0))
    run.take(event(5, "sealed", rollout_id=2))
    counts = {"live_eval/sealed": 1, "live_eval/discarded": 1, "live_eval/discarded/publisher_deadline": 1}
    assert logged == [
        ({"rollout/step": 0, "live_eval/held_s": 0.5, "live_eval/sealed": 1, "live_eval/discarded": 0},
         "rollout/step"),
        ({"rollout/step": 0, "live_eval/held_s": 5.0, **counts}, "rollout/step"),
        ({"rollout/step": 2, **counts, "live_eval/sealed": 2}, "rollout/step"),
    ]  # fmt: skip


def test_rows_go_through_slimes_own_logging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLS", str(tmp_path / "calls.jsonl"))
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "fakes" / "slime_checkout"))
    before = set(sys.modules)
    try:
        run = TrainerRun(ARGS, datasets=["aime"], attach=False, known=0)
        run.take(OutboxRow(seq=1, key="k1", result=result(2)))
        run.take(OutboxRow(seq=2, key="k2", result=result(3, status="failed")))
    finally:
        for name in set(sys.modules) - before:
            if name.split(".")[0] == "slime":
                del sys.modules[name]
    (call,) = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert (call["call"], call["step_key"]) == ("log", "eval/step")
