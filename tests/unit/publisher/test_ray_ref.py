"""The trainer is never held up and never hurt, and every version has one outcome."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch
from fakes.sync import DOWN, EMBED, MODEL, NORM, UP, content
from fakes.weights import weights

from live_eval.publisher.notes import MAX_UNTOLD
from live_eval.publisher.ray_ref import RayRefPublisher
from live_eval.publisher.sender import LinkError
from live_eval.reasons import DiscardReason
from protocol.messages import BucketHeader, SyncOutcome, TensorMeta

if TYPE_CHECKING:
    from conftest import Side

Outcomes = Callable[[RayRefPublisher, int], list[SyncOutcome]]
GivenUp = Callable[[int], None]


def publish(publisher: RayRefPublisher, version: int, tensors: tuple[TensorMeta, ...] = MODEL):
    publisher.begin(version, rollout_id=version - 2, train_step=10 * version)
    for named in weights(version, tensors):
        publisher.put_bucket([named])
    return publisher.commit()


def test_a_committed_sync_becomes_a_version_with_the_bytes_of_its_staging(
    side: Side, outcomes: Outcomes
) -> None:
    publisher = side.publisher()
    publisher.begin(1, rollout_id=4, train_step=40, held_s=0.25)
    for name, tensor in weights(1):
        publisher.put_bucket([(name, tensor)])
        tensor.zero_()
    report = publisher.commit()
    assert (report.weight_version, report.published, report.reason) == (1, True, "")
    assert 0.25 < report.held_s < 5.0
    (outcome,) = outcomes(publisher, 1)
    assert side.desk.store.get(1).held_s == report.held_s
    assert (outcome.state, outcome.policy_version) == ("sealed", 1)
    manifest = side.desk.store.verify(1)
    assert (manifest.rollout_id, manifest.train_step, manifest.run_id) == (4, 40, "run")
    for tensor in MODEL:
        assert side.desk.content(1, tensor).tobytes() == content(tensor, 1).tobytes()
    assert publisher.outcomes() == []


def test_nothing_reaches_the_receiver_before_the_commit(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher()
    publisher.begin(1)
    publisher.put_bucket(weights(1))
    publisher.abort("the trainer changed its mind")
    (outcome,) = outcomes(publisher, 1)
    assert (outcome.reason, outcome.detail) == ("publisher_aborted", "the trainer changed its mind")
    assert side.link.sent == ["SyncGivenUp"]
    assert side.desk.reasons() == [(1, "publisher_aborted")]
    assert publish(publisher, 2).published
    assert outcomes(publisher, 1)[0].policy_version == 2


def test_digests_travel_and_at_most_two_payloads_are_alive(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher()
    for version in (1, 2, 3):
        publish(publisher, version)
        assert outcomes(publisher, 1)[0].state == "sealed"
    assert side.link.max_payloads <= 2
    one_sync = ["GroupStatusRequest", "SyncBegin", *["BucketHeader"] * 4, "SourceDone", "SyncCommit"]
    assert side.link.sent == one_sync * 3


def test_a_frozen_receiver_costs_the_deadline_once(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher(deadline_s=1.0, answer_timeout_s=20.0)
    side.link.freeze()
    assert publish(publisher, 1).held_s < 1.0
    held = [publish(publisher, version) for version in (2, 3, 4)]
    assert [report.reason for report in held] == ["publisher_deadline"] * 3
    assert 0.95 < held[0].held_s < 10.0
    assert all(report.held_s < 0.95 for report in held[1:])
    side.link.thaw()
    assert [outcome.state for outcome in outcomes(publisher, 4)] == ["sealed"] + ["discarded"] * 3
    assert side.desk.reasons() == [(version, "publisher_deadline") for version in (2, 3, 4)]
    assert [each.held_s for each in side.desk.store.discarded()] == [report.held_s for report in held]
    assert publish(publisher, 5).published
    assert outcomes(publisher, 1)[0].state == "sealed"


def test_a_receiver_that_does_not_answer_in_time_loses_the_version_and_not_the_slot(
    side: Side, outcomes: Outcomes, given_up: GivenUp
) -> None:
    publisher = side.publisher(answer_timeout_s=0.3)
    side.link.freeze()
    for version in (1, 2):
        assert publish(publisher, version).published
        given_up(version)
    side.link.thaw()
    assert [(o.weight_version, o.reason) for o in outcomes(publisher, 2)] == [
        (1, "publisher_deadline"),
        (2, "publisher_deadline"),
    ]
    assert side.desk.reasons() == [(1, "publisher_deadline"), (2, "publisher_deadline")]
    publish(publisher, 3)
    assert outcomes(publisher, 1)[0].state == "sealed"


def test_a_dead_receiver_is_told_what_was_given_up_when_it_is_back(
    side: Side, outcomes: Outcomes, given_up: GivenUp
) -> None:
    publisher = side.publisher(deadline_s=10.0, answer_timeout_s=0.1)
    side.link.dead = True
    for version in (1, 2):
        assert publish(publisher, version).held_s < 5.0
        given_up(version)
    assert publisher.outcomes() == []
    side.link.dead = False
    assert [(o.weight_version, o.reason) for o in outcomes(publisher, 2)] == [
        (1, "receiver_restarted"),
        (2, "receiver_restarted"),
    ]
    assert side.desk.reasons() == [(1, "receiver_restarted"), (2, "receiver_restarted")]
    publish(publisher, 3)
    assert outcomes(publisher, 1)[0].policy_version == 3


def test_a_sync_waits_in_its_slot_for_a_receiver_that_is_being_restarted(
    side: Side, outcomes: Outcomes
) -> None:
    publisher = side.publisher(answer_timeout_s=5.0)
    side.link.dead = True
    assert publish(publisher, 1).held_s < 2.0
    time.sleep(0.3)
    side.link.dead = False
    assert outcomes(publisher, 1)[0].state == "sealed"
    assert side.desk.reasons() == []


def test_a_receiver_that_stays_away_costs_the_deadline_once_and_not_once_a_patience(
    side: Side, outcomes: Outcomes, given_up: GivenUp
) -> None:
    publisher = side.publisher(answer_timeout_s=2.0)
    side.link.dead = True
    assert publish(publisher, 1).published
    assert publish(publisher, 2).reason == "publisher_deadline"  # the first waits in the slot
    given_up(1)
    for version in (3, 4, 5):
        report = publish(publisher, version)
        assert report.published
        given_up(version)
    side.link.dead = False
    found = {outcome.weight_version: outcome.reason for outcome in outcomes(publisher, 5)}
    assert found == dict.fromkeys((1, 3, 4, 5), "receiver_restarted") | {2: "publisher_deadline"}
    publish(publisher, 6)
    assert outcomes(publisher, 1)[0].state == "sealed"


def test_a_full_object_store_costs_the_version(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher()
    side.link.put_fault = LinkError(DiscardReason.PUBLISHER_ABORTED, "the object store is full")
    publish(publisher, 1)
    assert outcomes(publisher, 1)[0].detail == "the object store is full"
    side.link.put_fault = None
    publish(publisher, 2)
    assert outcomes(publisher, 1)[0].state == "sealed"
    assert side.desk.reasons() == [(1, "publisher_aborted")]


def test_the_sender_outlives_an_error_that_nobody_foresaw(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher()
    side.link.put_fault = ZeroDivisionError("unforeseen")
    publish(publisher, 1)
    assert outcomes(publisher, 1)[0].detail == "ZeroDivisionError: unforeseen"
    side.link.put_fault = None
    publish(publisher, 2)
    assert outcomes(publisher, 1)[0].state == "sealed"


def test_a_lost_payload_costs_the_version(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher()
    side.link.lost_payload = True
    publish(publisher, 1)
    assert outcomes(publisher, 1)[0].reason == "payload_lost"
    side.link.lost_payload = False
    publish(publisher, 2)
    assert outcomes(publisher, 1)[0].state == "sealed"


def test_a_slot_that_the_receiver_reads_in_place_is_kept_until_it_has(side: Side, outcomes: Outcomes) -> None:
    side.link.in_place = True
    publisher = side.publisher(answer_timeout_s=5.0)
    side.link.freeze()
    assert publish(publisher, 1).published
    assert publish(publisher, 2).reason == "publisher_deadline"
    side.link.thaw()
    assert {o.weight_version: o.state for o in outcomes(publisher, 2)} == {1: "sealed", 2: "discarded"}
    for version in range(3, 8):
        assert publish(publisher, version).published
        assert outcomes(publisher, 1)[0].state == "sealed"


def test_a_slot_that_is_overwritten_while_it_is_read_makes_no_version(
    side: Side, outcomes: Outcomes, given_up: GivenUp
) -> None:
    side.link.in_place = True
    side.link.freezes_at = BucketHeader
    publisher = side.publisher(answer_timeout_s=1.5)
    assert publish(publisher, 1).published
    given_up(1)  # so the next sync has the slot while the first bucket is still to be read
    assert publish(publisher, 2).published
    side.link.thaw()
    assert [(o.weight_version, o.state) for o in outcomes(publisher, 2)] == [(1, "discarded"), (2, "sealed")]
    assert side.desk.reasons() == [(1, "publisher_deadline")]


def test_a_truncated_sync_is_discarded_by_the_receiver(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher()
    assert publish(publisher, 1, MODEL[:3]).published
    assert outcomes(publisher, 1)[0].reason == "incomplete"


def test_a_slot_that_is_too_small_says_so(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher(slot_bytes=128)
    report = publish(publisher, 1)
    assert (report.published, report.reason) == (False, "publisher_aborted")
    assert "128 bytes is too small" in outcomes(publisher, 1)[0].detail
    publisher.begin(2)
    publisher.put_bucket(weights(2, (NORM,)))
    assert publisher.commit().published


@pytest.mark.parametrize("version", [0, -1, "step-10", "7", None, 1.0, True])
def test_a_weight_version_that_is_no_positive_integer_is_given_up(
    side: Side, outcomes: Outcomes, version: object
) -> None:
    publisher = side.publisher()
    publisher.begin(version)  # type: ignore[arg-type]
    publisher.put_bucket(weights(1))
    report = publisher.commit()
    assert (report.published, report.reason) == (False, "bad_weight_version")
    assert repr(version) in outcomes(publisher, 1)[0].detail
    assert [reason for _, reason in side.desk.reasons()] == ["bad_weight_version"]


def test_a_commit_without_buckets_is_empty(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher()
    publisher.begin(1)
    report = publisher.commit()
    assert (report.published, report.reason) == (False, "empty")
    assert outcomes(publisher, 1)[0].reason == "empty"


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(2, dtype=torch.complex64),
        torch.ones(2, device="meta"),
        "no tensor",
        torch.ones(3).to_sparse(),
    ],
)
def test_a_tensor_that_cannot_be_staged_costs_the_version_and_raises_nothing(
    side: Side, outcomes: Outcomes, tensor: object
) -> None:
    publisher = side.publisher()
    publisher.begin(1)
    publisher.put_bucket([("odd", tensor)])  # type: ignore[list-item]
    publisher.put_bucket(weights(1))
    report = publisher.commit()
    assert (report.published, report.reason) == (False, "publisher_aborted")
    assert "cannot be staged" in outcomes(publisher, 1)[0].detail
    assert publish(publisher, 2).published
    assert outcomes(publisher, 1)[0].state == "sealed"


def test_calls_out_of_order_raise_nothing(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher()
    publisher.put_bucket(weights(1))
    assert not publisher.commit().published
    publisher.abort("nothing is open")
    publisher.begin(1)
    publisher.put_bucket(weights(1))
    publish(publisher, 2)
    found = outcomes(publisher, 2)
    assert [(o.weight_version, o.reason, o.state) for o in found] == [
        (1, "superseded_by_begin", "discarded"),
        (2, "", "sealed"),
    ]


def test_two_sources_make_one_version(side: Side, outcomes: Outcomes) -> None:
    both = ("pp_0", "pp_1")
    first = side.publisher(source="pp_0", sources=both)
    second = side.publisher(source="pp_1", sources=both)
    for version in (1, 2, 3):
        publish(first, version, (EMBED, UP))
        publish(second, version, (EMBED, DOWN, NORM))
        results = outcomes(first, 1) + outcomes(second, 1)
        assert [result.policy_version for result in results] == [version, version]
    side.desk.store.verify(3)


def test_if_one_source_gives_up_the_version_is_discarded_for_both(side: Side, outcomes: Outcomes) -> None:
    both = ("pp_0", "pp_1")
    first = side.publisher(source="pp_0", sources=both)
    second = side.publisher(source="pp_1", sources=both)
    publish(first, 1, (EMBED, UP))
    second.begin(1)
    second.abort("out of memory")
    assert outcomes(first, 1)[0].detail == "out of memory"
    assert outcomes(second, 1)[0].detail == "out of memory"
    for version in (2, 3):
        publish(first, version, (EMBED, UP))
        publish(second, version, (DOWN, NORM))
        assert [o.state for o in outcomes(first, 1) + outcomes(second, 1)] == ["sealed", "sealed"]


def test_a_restarted_trainer_continues_the_numbers(side: Side, outcomes: Outcomes) -> None:
    for life in ("life-1", "life-2"):
        publisher = side.publisher(incarnation_id=life)
        for version in (1, 2):
            publish(publisher, version)
            outcomes(publisher, 1)
        publisher.close()
    assert [record.policy_version for record in side.desk.store.sealed()] == [1, 2, 3, 4]
    assert [record.incarnation for record in side.desk.store.records()] == [1, 1, 2, 2]


def test_closing_ends_in_time_although_the_receiver_is_frozen(side: Side) -> None:
    publisher = side.publisher(answer_timeout_s=30.0)
    side.link.freeze()
    publish(publisher, 1)
    began = time.monotonic()
    publisher.close(0.3)
    assert time.monotonic() - began < 10.0


def test_closing_finishes_what_was_committed_and_ends_what_was_not_told(
    side: Side, outcomes: Outcomes
) -> None:
    publisher = side.publisher()
    publish(publisher, 1)
    publisher.close(5.0)
    assert [outcome.state for outcome in publisher.outcomes()] == ["sealed"]
    other = side.publisher(incarnation_id="life-2")
    side.link.dead = True
    publish(other, 1)
    other.close(0.3)
    assert [outcome.reason for outcome in outcomes(other, 1)] == ["receiver_restarted"]


def test_closing_waits_within_its_time_for_a_receiver_that_is_being_restarted(
    side: Side, given_up: GivenUp
) -> None:
    publisher = side.publisher(answer_timeout_s=0.2)
    side.link.dead = True
    publish(publisher, 1)
    given_up(1)
    threading.Timer(0.6, setattr, (side.link, "dead", False)).start()
    publisher.close(20.0)
    assert [outcome.reason for outcome in publisher.outcomes()] == ["receiver_restarted"]
    assert side.desk.reasons() == [(1, "receiver_restarted")]


def test_what_cannot_be_told_is_bounded(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher()
    side.link.dead = True
    number = MAX_UNTOLD + 10
    for version in range(1, number + 1):
        publisher.begin(version)
        publisher.abort("not now")
    assert len(outcomes(publisher, 10)) == 10
    side.link.dead = False
    outcomes(publisher, MAX_UNTOLD)
    assert len(side.desk.reasons()) == MAX_UNTOLD


def test_staging_costs_one_copy(side: Side, outcomes: Outcomes) -> None:
    publisher = side.publisher(slot_bytes=64 << 20, bucket_bytes=8 << 20)
    tensor = torch.ones(12 << 20, dtype=torch.float32)
    out = torch.empty_like(tensor)
    out.copy_(tensor)
    copies: list[float] = []
    for version in range(1, 4):  # one of them is disturbed by nothing else
        began = time.perf_counter()
        out.copy_(tensor)
        one_copy = time.perf_counter() - began
        publisher.begin(version)
        publisher.put_bucket([("w", tensor)])
        copies.append(publisher.commit().held_s / (one_copy + 0.005))
        outcomes(publisher, 1)
    assert min(copies) < 10, copies
