"""What the receiver makes of messages: versions, discards with their reason, and answers."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from fakes.receiving import DEADLINE_S, Desk
from fakes.sync import DOWN, EMBED, HEAD, MODEL, NORM, UP, begin, bucket, commit, content, done

from live_eval.errors import TransportError
from live_eval.reasons import DiscardReason
from live_eval.store import PinKind
from live_eval.subscriber.expected import SyncFault
from protocol.errors import UnknownMessage
from protocol.messages import (
    Ok,
    StoreChanged,
    SyncAbort,
    SyncAccepted,
    SyncGivenUp,
    SyncOutcome,
    TensorMeta,
)

if TYPE_CHECKING:
    from live_eval.store import BaseCheckpoint


def note(weight_version: int, *, reason: str = "publisher_deadline", life: str = "life-1") -> SyncGivenUp:
    return SyncGivenUp(
        sync_id=f"{life}/{weight_version}",
        run_id="run",
        incarnation_id=life,
        weight_version=weight_version,
        reason=reason,
        detail="no slot",
    )


def test_a_whole_sync_becomes_a_version_with_its_bytes(desk: Desk) -> None:
    outcome = desk.sync(1, *MODEL)
    assert (outcome.state, outcome.policy_version, outcome.reason) == ("sealed", 1, "")
    assert outcome.num_tensors == len(MODEL)
    assert outcome.num_bytes == sum(tensor.num_bytes for tensor in MODEL)
    manifest = desk.store.verify(1)
    assert manifest.digest == outcome.digest
    for tensor in MODEL:
        assert desk.content(1, tensor).tobytes() == content(tensor, 1).tobytes()
    assert desk.num_changes == 1


def test_a_begin_tells_the_number_that_the_version_will_have(desk: Desk) -> None:
    of = begin(5)
    assert desk.receiver.handle(of) == SyncAccepted(sync_id=of.sync_id, policy_version=5)


def test_a_refused_bucket_discards_the_sync_at_once(desk: Desk) -> None:
    of = desk.begin(1)
    desk.send(of, 0, EMBED)
    with pytest.raises(SyncFault) as fault:
        desk.receiver.open_bucket(bucket(of, 2, UP))
    assert fault.value.reason is DiscardReason.OUT_OF_ORDER
    assert desk.reasons() == [(1, "out_of_order")]
    assert desk.store.used_bytes() == 0
    outcome = desk.receiver.handle(commit(of))
    assert isinstance(outcome, SyncOutcome)
    assert (outcome.state, outcome.reason, outcome.policy_version) == ("discarded", "out_of_order", 1)
    assert desk.num_changes == 1
    assert desk.sync(2, *MODEL).state == "sealed"


def test_what_is_asked_of_an_ended_sync_is_answered_by_its_outcome(desk: Desk) -> None:
    of = desk.begin(1)
    ended = desk.receiver.handle(SyncAbort(sync_id=of.sync_id, reason="publisher_aborted", detail="by hand"))
    assert isinstance(ended, SyncOutcome)
    assert (ended.reason, ended.detail) == ("publisher_aborted", "by hand")
    for late in (of, done(of, 0), commit(of), SyncAbort(sync_id=of.sync_id, reason="else"), note(1)):
        assert desk.receiver.handle(late) == ended
    with pytest.raises(SyncFault, match="by hand"):
        desk.receiver.open_bucket(bucket(of, 0, *MODEL))
    assert desk.receiver.outcome(of.sync_id) == ended
    assert desk.reasons() == [(1, "publisher_aborted")]


def test_an_abort_with_a_word_of_its_own_is_the_publishers(desk: Desk) -> None:
    of = desk.begin(1)
    outcome = desk.receiver.handle(SyncAbort(sync_id=of.sync_id, reason="out of patience"))
    assert isinstance(outcome, SyncOutcome)
    assert outcome.reason == "publisher_aborted"


def test_a_second_begin_discards_the_open_sync(desk: Desk) -> None:
    first = desk.begin(1)
    desk.send(first, 0, *MODEL)
    assert desk.sync(2, *MODEL).policy_version == 2
    assert desk.reasons() == [(1, "superseded_by_begin")]
    outcome = desk.receiver.handle(commit(first))
    assert isinstance(outcome, SyncOutcome)
    assert outcome.reason == "superseded_by_begin"


def test_a_commit_without_buckets_is_empty(desk: Desk) -> None:
    of = desk.begin(1)
    outcome = desk.receiver.handle(commit(of))
    assert isinstance(outcome, SyncOutcome)
    assert outcome.reason == "empty"


def test_the_first_sync_may_not_be_truncated(desk: Desk) -> None:
    of = desk.begin(1)
    desk.send(of, 0, EMBED, UP)
    assert desk.finish(of, 1).reason == "incomplete"
    assert desk.store.sealed() == []


def test_silence_ends_a_sync(desk: Desk) -> None:
    of = desk.begin(1)
    desk.send(of, 0, *MODEL)
    desk.now = DEADLINE_S
    desk.receiver.tick()
    assert desk.reasons() == []
    desk.now += 0.1
    desk.receiver.tick()
    assert desk.reasons() == [(1, "source_deadline")]
    desk.receiver.tick()
    assert desk.num_changes == 1


def test_a_weight_version_that_cannot_be_is_refused_at_begin(desk: Desk) -> None:
    assert desk.sync(2, *MODEL).policy_version == 2
    for wrong in (0, -3, 2, 1):
        outcome = desk.receiver.handle(begin(wrong, incarnation="life-1"))
        assert isinstance(outcome, SyncOutcome)
        if wrong == 2:
            assert outcome.state == "sealed"  # the same sync again: told what it became
        else:
            assert (outcome.state, outcome.reason) == ("discarded", "bad_weight_version")
    assert desk.reasons() == [
        (0, "bad_weight_version"),
        (-3, "bad_weight_version"),
        (1, "bad_weight_version"),
    ]
    assert desk.sync(3, *MODEL).policy_version == 3


def test_a_restarted_trainer_counts_from_one_and_its_versions_continue(desk: Desk) -> None:
    first = [desk.sync(version, *MODEL).policy_version for version in (1, 2)]
    again = [desk.sync(version, *MODEL, life="life-2").policy_version for version in (1, 2)]
    assert first + again == [1, 2, 3, 4]
    records = {record.policy_version: record for record in desk.store.records()}
    assert (records[3].incarnation, records[3].weight_version) == (2, 1)
    late = desk.receiver.handle(begin(3, incarnation="life-1"))
    assert isinstance(late, SyncOutcome)
    assert late.reason == "bad_weight_version"


def test_a_sync_that_broke_in_its_middle_leaves_the_version_before_it_as_the_stable_one(desk: Desk) -> None:
    assert desk.sync(6, *MODEL).policy_version == 6
    of = desk.begin(7)
    desk.send(of, 0, EMBED)
    with pytest.raises(SyncFault):
        desk.receiver.open_bucket(bucket(of, 1, TensorMeta(UP.name, "float32", (4, 2))))
    with pytest.raises(SyncFault):
        desk.receiver.open_bucket(bucket(of, 2, DOWN, NORM))
    outcome = desk.finish(of, 3)
    assert (outcome.state, outcome.policy_version, outcome.reason) == ("discarded", 7, "wrong_shape")
    assert UP.name in outcome.detail
    assert desk.reasons() == [(7, "wrong_shape")]
    assert [record.policy_version for record in desk.store.sealed()] == [6]
    desk.store.verify(6)


def test_a_resumed_trainers_first_version_leaves_the_old_one_untouched(desk: Desk) -> None:
    for version in range(1, 13):
        desk.sync(version, *MODEL)
        if version == 1:
            desk.store.pin(1, "export", PinKind.EXPORT)
    old = desk.store.verify(1)
    of = desk.begin(1, life="life-2")
    desk.send(of, 0, *MODEL, salt=77)
    outcome = desk.finish(of, 1)
    assert (outcome.policy_version, outcome.weight_version) == (13, 1)
    assert desk.store.verify(1) == old
    assert desk.content(1, UP).tobytes() == content(UP, 1).tobytes()
    assert desk.content(13, UP).tobytes() == content(UP, 77).tobytes()
    assert desk.store.verify(13).digest != old.digest
    assert desk.store.sealed()[-1].policy_version == 13


def test_a_sync_that_does_not_fit_is_store_full_before_a_byte_is_taken(
    tmp_path: Path, base: BaseCheckpoint
) -> None:
    desk = Desk.open(tmp_path / "small", base, max_bytes=1000)
    outcome = desk.receiver.handle(begin(1))
    assert isinstance(outcome, SyncOutcome)
    assert (outcome.state, outcome.reason) == ("discarded", "store_full")
    assert desk.reasons() == [(1, "store_full")]
    desk.close()


def test_a_given_up_version_is_recorded_once(desk: Desk) -> None:
    for _ in range(2):
        outcome = desk.receiver.handle(note(3))
        assert isinstance(outcome, SyncOutcome)
        assert (outcome.state, outcome.reason, outcome.detail) == (
            "discarded",
            "publisher_deadline",
            "no slot",
        )
    assert desk.reasons() == [(3, "publisher_deadline")]
    late = desk.receiver.handle(begin(3))
    assert isinstance(late, SyncOutcome)
    assert late.reason == "publisher_deadline"
    assert desk.sync(4, *MODEL).policy_version == 4


def test_a_given_up_source_ends_the_open_sync(desk: Desk) -> None:
    of = desk.begin(1, sources=("pp_0", "pp_1"))
    desk.send(of, 0, EMBED)
    desk.receiver.handle(note(1))
    assert desk.reasons() == [(1, "publisher_deadline")]
    assert desk.store.records()[0].policy_version == 1


def test_a_note_does_not_end_another_sync(desk: Desk) -> None:
    of = desk.begin(2)
    desk.send(of, 0, *MODEL)
    for version in range(100, 200):
        desk.receiver.handle(note(version))
    assert desk.finish(of, 1).state == "sealed"


def test_a_new_receiver_ends_what_the_old_one_left_and_tells_the_reason(
    tmp_path: Path, base: BaseCheckpoint
) -> None:
    old = Desk.open(tmp_path / "shared", base)
    assert old.sync(1, *MODEL).state == "sealed"
    of = old.begin(2)
    old.send(of, 0, EMBED, UP)
    old.close()
    new = Desk.open(tmp_path / "shared", base)
    assert new.reasons() == [(2, "receiver_restarted")]
    with pytest.raises(TransportError, match="not known here"):
        new.receiver.open_bucket(bucket(of, 1, DOWN, NORM))
    with pytest.raises(TransportError, match="not known here"):
        new.receiver.handle(commit(of))
    told = new.receiver.handle(note(2))
    assert isinstance(told, SyncOutcome)
    assert (told.reason, told.policy_version) == ("receiver_restarted", 2)
    sealed = new.receiver.handle(note(1))
    assert isinstance(sealed, SyncOutcome)
    assert (sealed.state, sealed.policy_version) == ("sealed", 1)
    assert new.sync(3, *MODEL).policy_version == 3
    new.close()


def test_one_tensor_of_two_sources_is_one_tensor_if_its_bytes_are_equal(desk: Desk) -> None:
    of = desk.begin(1, sources=("pp_0", "pp_1"))
    assert desk.receiver.handle(of) == SyncAccepted(sync_id=of.sync_id, policy_version=1)
    desk.send(of, 0, EMBED, UP)
    desk.send(of, 0, EMBED, DOWN, NORM, source="pp_1")
    assert desk.receiver.handle(done(of, 1)) == Ok()
    assert desk.finish(of, 1, source="pp_1").num_tensors == len(MODEL)
    desk.store.verify(1)


def test_one_tensor_of_two_sources_with_different_bytes_is_refused(desk: Desk) -> None:
    of = desk.begin(1, sources=("pp_0", "pp_1"))
    desk.send(of, 0, EMBED, UP)
    with pytest.raises(SyncFault):
        desk.send(of, 0, EMBED, DOWN, NORM, source="pp_1", salt=77)
    assert desk.reasons() == [(1, "duplicate_tensor")]


@pytest.mark.parametrize(("salt", "state"), [(0, "sealed"), (1, "discarded")])
def test_a_tied_head_must_equal_the_embedding(desk: Desk, salt: int, state: str) -> None:
    of = desk.begin(1)
    header = bucket(of, 0, *MODEL, HEAD)
    memory = desk.receiver.open_bucket(header)
    for tensor, place in zip(MODEL, memory, strict=False):
        place[:] = content(tensor, 1)
    memory[-1][:] = content(EMBED, 1)
    memory[-1][0] += salt
    desk.receiver.bucket_filled(header)
    outcome = desk.finish(of, 1)
    assert outcome.state == state
    if state == "discarded":
        assert outcome.reason == "tied_mismatch"


def test_two_sources_that_begin_in_different_ways_do_not_belong_together(desk: Desk) -> None:
    of = desk.begin(1, sources=("pp_0", "pp_1"))
    outcome = desk.receiver.handle(begin(1, sources=("pp_0",)))
    assert isinstance(outcome, SyncOutcome)
    assert outcome.reason == "mixed_versions"
    assert desk.receiver.outcome(of.sync_id) == outcome


def test_a_begin_without_sources_is_refused(desk: Desk) -> None:
    outcome = desk.receiver.handle(begin(1, sources=()))
    assert isinstance(outcome, SyncOutcome)
    assert outcome.reason == "unknown_source"


def test_a_commit_waits_for_the_other_source(desk: Desk) -> None:
    of = desk.begin(1, sources=("pp_0", "pp_1"))
    desk.send(of, 0, EMBED, UP)
    desk.receiver.handle(done(of, 1))
    answers: list[SyncOutcome] = []
    waiting = threading.Thread(target=lambda: answers.append(desk.receiver.commit(commit(of))))
    waiting.start()
    time.sleep(0.05)
    assert answers == []
    desk.send(of, 0, DOWN, NORM, source="pp_1")
    assert desk.finish(of, 1, source="pp_1").state == "sealed"
    waiting.join(30.0)
    assert [answer.policy_version for answer in answers] == [1]


def test_a_commit_that_waits_in_vain_ends_at_the_deadline(desk: Desk) -> None:
    of = desk.begin(1, sources=("pp_0", "pp_1"))
    desk.send(of, 0, EMBED, UP)
    desk.receiver.handle(done(of, 1))
    answers: list[SyncOutcome] = []
    waiting = threading.Thread(target=lambda: answers.append(desk.receiver.commit(commit(of))))
    waiting.start()
    time.sleep(0.05)
    while waiting.is_alive():  # if it came too late for the first
        desk.now += DEADLINE_S + 1
        waiting.join(0.5)
    assert [answer.reason for answer in answers] == ["source_deadline"]
    assert "pp_1" in answers[0].detail


def test_the_open_sync_ends_when_its_transport_does(desk: Desk) -> None:
    desk.receiver.fail_open(DiscardReason.PUBLISHER_LOST, "nothing is open")
    assert desk.reasons() == []
    desk.begin(1)
    desk.receiver.fail_open(DiscardReason.PUBLISHER_LOST, "the connection was closed")
    assert desk.reasons() == [(1, "publisher_lost")]


def test_messages_that_are_none_of_the_receivers_are_refused(desk: Desk) -> None:
    with pytest.raises(UnknownMessage):
        desk.receiver.handle(StoreChanged())


def test_what_a_sync_cost_the_trainer_is_recorded_before_its_end_however_it_ends(desk: Desk) -> None:
    replace = msgspec.structs.replace
    first = replace(begin(1), held_s=0.25)
    desk.receiver.handle(first)
    desk.send(first, 0, *MODEL)
    desk.receiver.handle(replace(done(first, 1), held_s=0.5))
    desk.receiver.handle(commit(first))
    second = desk.begin(2)
    desk.receiver.handle(SyncAbort(sync_id=second.sync_id, reason="publisher_aborted", held_s=1.0))
    desk.receiver.handle(replace(note(3), held_s=2.0))
    desk.receiver.handle(note(4))
    assert desk.store.get(1).held_s == 0.5
    assert [record.held_s for record in desk.store.discarded()] == [1.0, 2.0, None]
