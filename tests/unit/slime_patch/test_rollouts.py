"""Which rollout an update belongs to, and whether it is wanted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fakes.slime_standins import RayTrainGroup

from live_eval.results.rows import OutboxRow, VersionEvent
from live_eval.scheduling.due import DueRule
from live_eval.targets import PolicyTarget
from slime_patch.job import LiveEvalJob, watch_syncs
from slime_patch.rollouts import Schedule, SyncCounter
from slime_patch.settings import settings_of

if TYPE_CHECKING:
    from fakes.slime_standins import Parse

    from slime_patch.tap import SyncNote

EACH = Schedule(
    start_rollout_id=0,
    num_rollout=6,
    steps_per_rollout=2,
    update_weights_interval=1,
    interval=None,
    skip_first=False,
    keep_all=False,
)


def notes(schedule: Schedule) -> list[SyncNote]:
    """Those of a whole training: a push, then after each `update_weights_interval` rollouts another."""
    counter = SyncCounter(schedule)
    found = [counter.next_sync()]
    for rollout_id in range(schedule.start_rollout_id, schedule.num_rollout):
        counter.trained(rollout_id)
        if (rollout_id + 1) % schedule.update_weights_interval == 0:
            found.append(counter.next_sync())
    return found


def test_the_first_push_belongs_to_no_rollout_and_each_other_to_the_one_before_it() -> None:
    assert [(note.rollout_id, note.train_step) for note in notes(EACH)][:3] == [(None, 0), (0, 2), (1, 4)]
    assert all(note.wanted for note in notes(EACH))


def test_the_interval_decides_and_the_last_one_is_always_wanted() -> None:
    wanted = [note.rollout_id for note in notes(replace(EACH, interval=4)) if note.wanted]
    assert wanted == [None, 3, 5]


def test_the_first_push_can_be_skipped() -> None:
    wanted = [note.rollout_id for note in notes(replace(EACH, interval=3, skip_first=True)) if note.wanted]
    assert wanted == [2, 5]


def test_all_are_kept_if_asked_for() -> None:
    assert all(note.wanted for note in notes(replace(EACH, interval=4, keep_all=True)))


def test_several_rollouts_between_two_updates() -> None:
    found = notes(replace(EACH, num_rollout=7, update_weights_interval=2, interval=6))
    assert [note.rollout_id for note in found] == [None, 1, 3, 5]
    assert [note.rollout_id for note in found if note.wanted] == [None, 5]


def test_a_due_update_that_was_given_up_is_made_up_for_by_the_next_ones_until_one_is_a_version() -> None:
    counter = SyncCounter(replace(EACH, num_rollout=20, interval=5))
    lost, wanted = {None, 3, 4, 5}, list[int | None]()
    for rollout_id in (None, *range(12)):
        if rollout_id is not None:
            counter.trained(rollout_id)
        note = counter.next_sync()
        if note.wanted:
            wanted.append(rollout_id)
        if rollout_id in lost:  # 3 is not copied, so nobody misses it; the first push has no due point
            counter.given_up(rollout_id)
    assert wanted == [None, 4, 5, 6, 9]
    rule = DueRule(interval=5, skip_first=False)
    (due,) = [rule.judge(PolicyTarget(policy_version=8, weight_version=8, rollout_id=6))]
    assert due is not None and due.due_rollout == 4, "the service takes it for the point that was missed"


def test_a_resumed_run_goes_on_counting() -> None:
    found = notes(replace(EACH, start_rollout_id=4, interval=2))
    assert [(note.rollout_id, note.train_step) for note in found] == [(3, 8), (4, 10), (5, 12)]
    assert [note.rollout_id for note in found if note.wanted] == [3, 5]


def test_steps_of_the_critic_alone_send_no_new_version_and_count_no_train_step() -> None:
    schedule = replace(EACH, num_rollout=4, critic_only_steps=2)
    counter = SyncCounter(schedule)
    found = [counter.next_sync()]
    for rollout_id in range(schedule.num_rollout):
        if rollout_id >= schedule.critic_only_steps:
            counter.trained(rollout_id)
        found.append(counter.next_sync())
    assert [(note.rollout_id, note.train_step, note.wanted) for note in found] == [
        (None, 0, True),
        (None, 0, False),
        (None, 0, False),
        (2, 2, True),
        (3, 4, True),
    ]


def test_a_first_update_that_sends_nothing_is_no_version() -> None:
    found = notes(replace(EACH, num_rollout=3, first_push_has_version=False))
    assert [(note.rollout_id, note.wanted) for note in found] == [
        (None, False), (0, True), (1, True), (2, True),
    ]  # fmt: skip


def test_unknown_steps_stay_unknown() -> None:
    assert notes(replace(EACH, steps_per_rollout=None))[1].train_step is None


def test_the_note_goes_out_before_the_update_and_nobody_waits_for_it() -> None:
    group = RayTrainGroup(num_actors=2)
    watch_syncs(group, SyncCounter(EACH))
    assert group.update_weights() == ["update_weights", "update_weights"]
    assert group.async_train(0, "data") == ["train", "train"]
    group.update_weights()
    assert group._actor_handlers[1].log == [
        ("live_eval_note", None, 0, True), ("update_weights",), ("train", 0, "data"),
        ("live_eval_note", 0, 2, True), ("update_weights",),
    ]  # fmt: skip


def test_errors_of_the_training_come_out_unchanged() -> None:
    group = RayTrainGroup()
    group.fails_with = RuntimeError("NCCL")
    watch_syncs(group, SyncCounter(EACH))
    with pytest.raises(RuntimeError, match="NCCL"):
        group.update_weights()


def test_the_job_tells_its_counter_of_syncs_that_were_given_up_in_this_training(parse: Parse) -> None:
    line = "--eval-mode latest-synced --eval-num-gpus 1 --eval-interval 2 --eval-prompt-data toy toy.jsonl"
    settings = settings_of(*parse(line))
    assert settings is not None
    job = LiveEvalJob(settings)
    counter = SyncCounter(replace(EACH, num_rollout=9, interval=2))
    job._counter = counter
    heard: dict[int, bool] = {}
    for seq, state in ((1, "discarded"), (2, "sealed"), (3, "discarded")):
        counter.next_sync()
        for rollout_id in (2 * seq - 2, 2 * seq - 1):
            counter.trained(rollout_id)
        counter.next_sync()
        event = VersionEvent(key=str(seq), state=state, rollout_id=2 * seq - 1, weight_version=seq)
        job._heard_of_sync(OutboxRow(seq=seq, key=str(seq), event=event), 1)
        heard[seq] = counter._owed
    assert heard == {1: False, 2: False, 3: True}, "row 1 is of an earlier training, row 2 is a version"
