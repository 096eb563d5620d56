"""The rules by which a sync becomes a version, and each way in which it does not."""

from __future__ import annotations

import pytest
from fakes.sync import DOWN, EMBED, HEAD, MODEL, NORM, UP, begin, bucket, commit, done, expected_tensors

from live_eval.reasons import DiscardReason
from live_eval.subscriber.expected import SyncFault
from live_eval.subscriber.session import SyncSession
from protocol.messages import BucketHeader, SyncBegin, TensorMeta

DEADLINE_S = 10.0


def open_session(of: SyncBegin, *, tied: bool = False) -> SyncSession:
    return SyncSession(expected_tensors(tied=tied), begin=of, now=0.0, deadline_s=DEADLINE_S)


def send(session: SyncSession, header: BucketHeader, *, salt: str = "", now: float = 1.0) -> None:
    """Announce a bucket and let its bytes arrive; a tensor's digest is its name and the salt."""
    session.on_bucket(header, now=now)
    digests = [tensor.name + salt for tensor in header.tensors]
    session.on_bucket_bytes(header.source, header.index, digests, now=now)


def assert_discarded(session: SyncSession, reason: DiscardReason, *words: str) -> None:
    verdict = session.verdict
    assert verdict is not None
    assert not verdict.seal
    assert verdict.reason is reason
    for word in words:
        assert word in verdict.detail


def refused(session: SyncSession, header: BucketHeader, reason: DiscardReason, *words: str) -> None:
    with pytest.raises(SyncFault) as fault:
        session.on_bucket(header, now=1.0)
    assert fault.value.reason is reason
    assert_discarded(session, reason, *words)


def test_a_whole_sync_is_sealed_at_its_commit_and_not_before() -> None:
    of = begin()
    session = open_session(of)
    send(session, bucket(of, 0, EMBED, UP))
    send(session, bucket(of, 1, DOWN, NORM))
    assert session.on_source_done(done(of, 2), now=2.0) is None
    assert session.verdict is None
    verdict = session.on_commit(commit(of), now=3.0)
    assert verdict is not None
    assert verdict.seal
    assert verdict.reason is None
    assert session.digests == {tensor.name: tensor.name for tensor in MODEL}


def test_the_digests_of_the_source_must_be_those_that_arrived() -> None:
    of = begin()
    session = open_session(of)
    send(session, bucket(of, 0, *MODEL))
    told = {tensor.name: tensor.name for tensor in MODEL}
    assert session.on_source_done(done(of, 1, digests=told), now=2.0) is None
    verdict = session.on_commit(commit(of), now=3.0)
    assert verdict is not None
    assert verdict.seal


def test_swapped_names_are_seen_by_digest() -> None:
    of = begin()
    session = open_session(of)
    send(session, bucket(of, 0, *MODEL))
    told = {tensor.name: tensor.name for tensor in MODEL}
    told[UP.name], told[DOWN.name] = told[DOWN.name], told[UP.name]
    verdict = session.on_source_done(done(of, 1, digests=told), now=2.0)
    assert verdict is session.verdict
    assert_discarded(session, DiscardReason.DIGEST_MISMATCH, "2 tensors", UP.name)


@pytest.mark.parametrize("told", [{EMBED.name: EMBED.name}, {"else": "1", **{t.name: t.name for t in MODEL}}])
def test_digests_of_other_tensors_than_came_are_refused(told: dict[str, str]) -> None:
    of = begin()
    session = open_session(of)
    send(session, bucket(of, 0, *MODEL))
    session.on_source_done(done(of, 1, digests=told), now=2.0)
    assert_discarded(session, DiscardReason.DIGEST_MISMATCH, "other tensors")


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (TensorMeta("model.layers.9.mlp.up_proj.weight", "float32", (4, 4)), DiscardReason.UNKNOWN_TENSOR),
        (TensorMeta(UP.name, "bfloat16", (4, 4)), DiscardReason.WRONG_DTYPE),
        (TensorMeta(UP.name, "complex64", (4, 4)), DiscardReason.WRONG_DTYPE),
        (TensorMeta(UP.name, "float32", (4, 8)), DiscardReason.WRONG_SHAPE),
        (TensorMeta(UP.name, "float32", (16,)), DiscardReason.WRONG_SHAPE),
        (TensorMeta(UP.name, "float32", (-4, -4)), DiscardReason.WRONG_SHAPE),
        (TensorMeta(UP.name, "float32", ()), DiscardReason.WRONG_SHAPE),
    ],
)
def test_a_tensor_that_is_not_the_models_is_refused_before_its_bytes(
    tensor: TensorMeta, reason: DiscardReason
) -> None:
    of = begin()
    refused(open_session(of), bucket(of, 0, EMBED, tensor), reason, tensor.name)


def test_an_empty_bucket_is_refused() -> None:
    of = begin()
    refused(open_session(of), bucket(of, 0), DiscardReason.EMPTY, "bucket 0 of pp_0")


def test_a_name_twice_in_one_bucket_is_refused() -> None:
    of = begin()
    refused(open_session(of), bucket(of, 0, UP, UP), DiscardReason.DUPLICATE_TENSOR)


def test_two_versions_in_one_sync_are_refused() -> None:
    of = begin(7)
    session = open_session(of)
    send(session, bucket(of, 0, EMBED))
    send(session, bucket(of, 1, UP))
    refused(session, bucket(of, 2, DOWN, weight_version=8), DiscardReason.MIXED_VERSIONS, "8", "7")


def test_a_commit_of_another_version_is_refused() -> None:
    of = begin(7)
    session = open_session(of)
    send(session, bucket(of, 0, *MODEL))
    session.on_source_done(done(of, 1), now=2.0)
    session.on_commit(commit(of, 8), now=3.0)
    assert_discarded(session, DiscardReason.MIXED_VERSIONS, "commit")


@pytest.mark.parametrize("index", [0, 2, -1])
def test_a_repeated_or_skipped_bucket_is_refused(index: int) -> None:
    of = begin()
    session = open_session(of)
    send(session, bucket(of, 0, EMBED))
    refused(session, bucket(of, index, UP), DiscardReason.OUT_OF_ORDER, "bucket 1 is next")


def test_a_bucket_after_its_source_was_done_is_refused() -> None:
    of = begin()
    session = open_session(of)
    send(session, bucket(of, 0, *MODEL))
    session.on_source_done(done(of, 1), now=2.0)
    refused(session, bucket(of, 1, UP), DiscardReason.OUT_OF_ORDER, "was done")


def test_a_bucket_of_a_source_that_was_not_announced_is_refused() -> None:
    of = begin()
    refused(open_session(of), bucket(of, 0, EMBED, source="pp_7"), DiscardReason.UNKNOWN_SOURCE, "pp_7")


@pytest.mark.parametrize("sources", [(), ("pp_0", "pp_0")])
def test_a_begin_that_does_not_name_its_sources_once_each_is_discarded(sources: tuple[str, ...]) -> None:
    assert_discarded(open_session(begin(sources=sources)), DiscardReason.UNKNOWN_SOURCE)


def test_a_commit_without_buckets_is_empty() -> None:
    of = begin()
    session = open_session(of)
    session.on_commit(commit(of), now=1.0)
    assert_discarded(session, DiscardReason.EMPTY)


def test_sources_that_are_done_without_buckets_are_empty() -> None:
    of = begin(sources=("pp_0", "pp_1"))
    session = open_session(of)
    session.on_source_done(done(of, 0, source="pp_0"), now=1.0)
    session.on_source_done(done(of, 0, source="pp_1"), now=1.0)
    session.on_commit(commit(of), now=1.0)
    assert_discarded(session, DiscardReason.EMPTY)


def test_a_truncated_sync_is_incomplete_even_if_it_is_the_first() -> None:
    of = begin()
    session = open_session(of)
    send(session, bucket(of, 0, EMBED, UP))
    session.on_source_done(done(of, 1), now=2.0)
    session.on_commit(commit(of), now=3.0)
    assert_discarded(session, DiscardReason.INCOMPLETE, "2 of 4", DOWN.name, NORM.name)


def test_a_lost_bucket_is_incomplete() -> None:
    of = begin()
    session = open_session(of)
    send(session, bucket(of, 0, *MODEL))
    session.on_source_done(done(of, 2), now=2.0)
    assert_discarded(session, DiscardReason.INCOMPLETE, "sent 2 buckets, 1 arrived")


def test_a_source_is_not_done_while_a_buckets_bytes_are_missing() -> None:
    of = begin()
    session = open_session(of)
    session.on_bucket(bucket(of, 0, *MODEL), now=1.0)
    session.on_source_done(done(of, 1), now=2.0)
    assert_discarded(session, DiscardReason.INCOMPLETE, "sent 1 buckets, 0 arrived")


def test_bytes_that_nobody_announced_are_refused() -> None:
    of = begin()
    session = open_session(of)
    send(session, bucket(of, 0, EMBED))
    with pytest.raises(SyncFault):
        session.on_bucket_bytes("pp_0", 0, ["again"], now=2.0)
    assert_discarded(session, DiscardReason.OUT_OF_ORDER, "bucket 0 of pp_0")


def test_a_source_that_never_finishes_is_named() -> None:
    of = begin(sources=("pp_0", "pp_1"))
    session = open_session(of)
    send(session, bucket(of, 0, *MODEL), now=4.0)
    session.on_source_done(done(of, 1), now=5.0)
    assert session.on_commit(commit(of), now=6.0) is None
    assert session.on_tick(6.0 + DEADLINE_S) is None
    assert session.on_tick(6.1 + DEADLINE_S) is session.verdict
    assert_discarded(session, DiscardReason.SOURCE_DEADLINE, "pp_1")
    assert "pp_0" not in (session.verdict.detail if session.verdict else "")


def test_each_event_of_a_sync_extends_its_deadline() -> None:
    of = begin()
    session = open_session(of)
    now = 0.0
    for index, tensor in enumerate(MODEL):
        now += DEADLINE_S
        assert session.on_tick(now) is None
        send(session, bucket(of, index, tensor), now=now)
    session.on_source_done(done(of, 4), now=now)
    verdict = session.on_commit(commit(of), now=now)
    assert verdict is not None
    assert verdict.seal


def test_a_publisher_that_never_commits_is_lost() -> None:
    of = begin()
    session = open_session(of)
    send(session, bucket(of, 0, *MODEL))
    session.on_source_done(done(of, 1), now=2.0)
    session.on_tick(2.1 + DEADLINE_S)
    assert_discarded(session, DiscardReason.PUBLISHER_LOST, "commit is missing")


def test_a_commit_of_several_sources_that_sent_nothing_is_empty_at_the_deadline() -> None:
    of = begin(sources=("pp_0", "pp_1"))
    session = open_session(of)
    assert session.on_commit(commit(of), now=1.0) is None
    session.on_tick(1.1 + DEADLINE_S)
    assert_discarded(session, DiscardReason.EMPTY)


def test_two_sources_may_interleave_and_the_seal_waits_for_both() -> None:
    of = begin(sources=("pp_0", "pp_1"))
    session = open_session(of)
    first, second = bucket(of, 0, EMBED), bucket(of, 0, DOWN, source="pp_1")
    session.on_bucket(first, now=1.0)
    session.on_bucket(second, now=1.0)
    session.on_bucket_bytes("pp_1", 0, ["d"], now=1.0)
    session.on_bucket_bytes("pp_0", 0, ["e"], now=1.0)
    send(session, bucket(of, 1, NORM, source="pp_1"))
    assert session.on_source_done(done(of, 2, source="pp_1"), now=2.0) is None
    assert session.on_commit(commit(of), now=2.0) is None
    send(session, bucket(of, 1, UP))
    verdict = session.on_source_done(done(of, 2), now=3.0)
    assert verdict is not None
    assert verdict.seal


def test_every_source_may_commit() -> None:
    of = begin(sources=("pp_0", "pp_1"))
    session = open_session(of)
    send(session, bucket(of, 0, EMBED, UP))
    session.on_source_done(done(of, 1), now=1.0)
    assert session.on_commit(commit(of), now=1.0) is None
    send(session, bucket(of, 0, DOWN, NORM, source="pp_1"))
    session.on_source_done(done(of, 1, source="pp_1"), now=2.0)
    verdict = session.on_commit(commit(of), now=2.0)
    assert verdict is not None
    assert verdict.seal


@pytest.mark.parametrize("late_first", [False, True])
def test_one_tensor_from_two_sources_with_equal_bytes_is_one_tensor(late_first: bool) -> None:
    of = begin(sources=("pp_0", "pp_1"))
    session = open_session(of)
    session.on_bucket(bucket(of, 0, EMBED, UP), now=1.0)
    session.on_bucket(bucket(of, 0, EMBED, DOWN, NORM, source="pp_1"), now=1.0)
    arrivals = [("pp_0", ["e", "u"]), ("pp_1", ["e", "d", "n"])]
    for source, digests in reversed(arrivals) if late_first else arrivals:
        session.on_bucket_bytes(source, 0, digests, now=2.0)
    told = {EMBED.name: "e", DOWN.name: "d", NORM.name: "n"}
    session.on_source_done(done(of, 1, source="pp_1", digests=told), now=3.0)
    session.on_source_done(done(of, 1), now=3.0)
    verdict = session.on_commit(commit(of), now=3.0)
    assert verdict is not None
    assert verdict.seal
    assert session.digests == {EMBED.name: "e", UP.name: "u", DOWN.name: "d", NORM.name: "n"}


def test_one_tensor_from_two_sources_with_different_bytes_is_refused() -> None:
    of = begin(sources=("pp_0", "pp_1"))
    session = open_session(of)
    send(session, bucket(of, 0, EMBED))
    with pytest.raises(SyncFault):
        send(session, bucket(of, 0, EMBED, source="pp_1"), salt="other")
    assert_discarded(session, DiscardReason.DUPLICATE_TENSOR, EMBED.name, "pp_1")


def test_a_tied_head_may_be_left_out() -> None:
    of = begin()
    session = open_session(of, tied=True)
    send(session, bucket(of, 0, *MODEL))
    session.on_source_done(done(of, 1), now=2.0)
    verdict = session.on_commit(commit(of), now=2.0)
    assert verdict is not None
    assert verdict.seal


@pytest.mark.parametrize(("digest", "seals"), [("same", True), ("other", False)])
def test_a_tied_head_that_is_sent_must_equal_the_embedding(digest: str, seals: bool) -> None:
    of = begin()
    session = open_session(of, tied=True)
    session.on_bucket(bucket(of, 0, *MODEL, HEAD), now=1.0)
    session.on_bucket_bytes("pp_0", 0, ["same", "u", "d", "n", digest], now=1.0)
    session.on_source_done(done(of, 1), now=2.0)
    verdict = session.on_commit(commit(of), now=2.0)
    assert verdict is not None
    assert verdict.seal is seals
    if not seals:
        assert_discarded(session, DiscardReason.TIED_MISMATCH, HEAD.name)


def test_an_untied_head_is_unknown_to_a_model_without_one() -> None:
    of = begin()
    refused(open_session(of), bucket(of, 0, HEAD), DiscardReason.UNKNOWN_TENSOR)


def test_the_first_fault_is_the_verdict_and_nothing_changes_it() -> None:
    of = begin()
    session = open_session(of)
    first = session.on_fault(DiscardReason.PAYLOAD_LOST, "owner died")
    assert session.on_fault(DiscardReason.STORE_FULL, "later") is first
    for event in (
        lambda: session.on_bucket(bucket(of, 0, *MODEL), now=1.0),
        lambda: session.on_bucket_bytes("pp_0", 0, ["x"], now=1.0),
    ):
        with pytest.raises(SyncFault) as fault:
            event()
        assert fault.value.reason is DiscardReason.PAYLOAD_LOST
    assert session.on_source_done(done(of, 0), now=1.0) is first
    assert session.on_commit(commit(of), now=1.0) is first
    assert session.on_tick(1000.0) is first


def test_nothing_is_added_to_a_sealed_sync() -> None:
    of = begin()
    session = open_session(of)
    send(session, bucket(of, 0, *MODEL))
    session.on_source_done(done(of, 1), now=2.0)
    sealed = session.on_commit(commit(of), now=2.0)
    with pytest.raises(SyncFault):
        session.on_bucket(bucket(of, 1, UP), now=3.0)
    assert session.on_fault(DiscardReason.PUBLISHER_ABORTED, "too late") is sealed
    assert session.on_tick(1000.0) is sealed
    assert session.on_commit(commit(of), now=4.0) is sealed
