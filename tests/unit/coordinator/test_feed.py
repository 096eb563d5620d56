"""What a feed makes of the catalogue: everything once, in order, and the same in each life."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fakes.checkpoints import sync_begin
from fakes.job_bench import budget_beside

from live_eval.coordinator.feed import (
    ABANDONED_S,
    IncarnationEnded,
    SyncAbandoned,
    SyncBegan,
    SyncDiscarded,
    VersionLost,
    VersionSealed,
    VersionsFeed,
)
from live_eval.reasons import DiscardReason
from live_eval.store import VersionStore
from live_eval.store.records import FRESH_OWNER, PinKind, VersionState

if TYPE_CHECKING:
    import pytest
    from fakes.job_bench import Bench

    from live_eval.coordinator.feed import Change
    from live_eval.store import VersionRecord


def short(change: Change) -> str:
    match change:
        case SyncBegan(version):
            return f"began {version}"
        case SyncAbandoned(version):
            return f"abandoned {version}"
        case SyncDiscarded(record, key):
            return f"discarded {record.weight_version} {record.reason} as {key}"
        case VersionSealed(record):
            return f"sealed {record.policy_version}"
        case VersionLost(record):
            return f"lost {record.policy_version}"
        case IncarnationEnded(number):
            return f"ended {number}"


def look(feed: VersionsFeed) -> list[str]:
    return [short(change) for change in feed.poll()]


def test_each_version_is_reported_once_in_the_order_of_numbers(bench: Bench) -> None:
    feed = VersionsFeed(bench.store)
    assert look(feed) == []
    bench.seal(1)
    bench.seal(2)
    assert look(feed) == ["sealed 1", "sealed 2"]
    bench.seal(3)
    assert look(feed) == ["sealed 3"]
    assert look(feed) == []


def test_a_sync_under_way_is_reported_and_then_what_became_of_it(bench: Bench) -> None:
    feed = VersionsFeed(bench.store)
    staged = bench.store.begin(sync_begin(1))
    assert look(feed) == ["began 1"]
    assert look(feed) == []
    staged.discard(DiscardReason.INCOMPLETE, "two tensors")
    assert look(feed) == ["discarded 1 incomplete as discarded/v1"]
    bench.store.begin(sync_begin(2))
    assert look(feed) == ["began 2"]


def test_a_sync_whose_receiver_never_comes_back_is_abandoned_once_and_may_still_end(bench: Bench) -> None:
    now = 0.0
    root, base = bench.store.root, bench.model.base(bench.store.root.parent / "base-2")

    def reader() -> VersionStore:
        return VersionStore.open(root, max_bytes=1 << 30, keep_newest=3)

    bench.store.begin(sync_begin(1))
    with reader() as store:
        feed = VersionsFeed(store, clock=lambda: now)
        assert look(feed) == ["began 1"]
        now += 2 * ABANDONED_S
        assert look(feed) == []  # the receiver lives: it has a deadline of its own
        bench.store.close()
        assert look(feed) == []
        now += ABANDONED_S / 2
        with VersionStore.open(root, base=base, max_bytes=1 << 30, keep_newest=3, writer=True):
            assert look(feed) == ["discarded 1 receiver_restarted as discarded/v1"]


def test_nobody_waits_for_a_sync_without_a_receiver(bench: Bench) -> None:
    now = 0.0
    bench.store.begin(sync_begin(1))
    with VersionStore.open(bench.store.root, max_bytes=1 << 30, keep_newest=3) as store:
        feed = VersionsFeed(store, clock=lambda: now)
        bench.store.close()
        assert look(feed) == ["began 1"]
        now += ABANDONED_S
        assert look(feed) == ["abandoned 1"]
        now += 10 * ABANDONED_S
        assert look(feed) == []


def test_refused_syncs_have_names_that_differ_and_are_the_same_in_the_next_life(bench: Bench) -> None:
    for version in (3, 3, 4):
        bench.store.sync_refused(sync_begin(version), DiscardReason.PUBLISHER_DEADLINE)
    expected = [
        "discarded 3 publisher_deadline as refused/life-1/3/0",
        "discarded 3 publisher_deadline as refused/life-1/3/1",
        "discarded 4 publisher_deadline as refused/life-1/4/2",
    ]
    feed = VersionsFeed(bench.store)
    assert look(feed) == expected
    bench.store.sync_refused(sync_begin(5), DiscardReason.PUBLISHER_DEADLINE)
    last = "discarded 5 publisher_deadline as refused/life-1/5/3"
    assert look(feed) == [last]
    assert look(VersionsFeed(bench.store)) == [*expected, last]


def test_a_version_that_waited_and_had_to_go_is_lost_once(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make_bench(max_bytes=budget_beside(tmp_path / "measured", 1), keep_newest=1)
    feed = VersionsFeed(bench.store)
    bench.seal(1)
    bench.seal(2)
    assert look(feed) == ["sealed 1", "sealed 2"]
    bench.seal(3)
    assert look(feed) == ["lost 1", "sealed 3"]
    assert look(feed) == []


def test_a_version_that_had_to_go_before_anyone_saw_it_is_reported_as_sealed_and_lost(
    make_bench: Callable[..., Bench], tmp_path: Path
) -> None:
    bench = make_bench(max_bytes=budget_beside(tmp_path / "measured", 1), keep_newest=1)
    for version in (1, 2, 3):
        bench.seal(version)
    assert look(VersionsFeed(bench.store)) == ["sealed 1", "lost 1", "sealed 2", "sealed 3"]


def test_a_version_that_retention_gave_up_is_not_lost(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(keep_newest=1)
    feed = VersionsFeed(bench.store)
    for version in (1, 2):
        bench.seal(version)
        bench.store.unpin(version, FRESH_OWNER)
    assert look(feed) == ["sealed 1", "sealed 2"]
    bench.store.collect()
    assert bench.record(1).state is VersionState.COLLECTED
    assert look(feed) == []
    assert look(VersionsFeed(bench.store)) == ["sealed 1", "sealed 2"]


def test_ended_incarnations_are_reported_once_after_the_versions(bench: Bench) -> None:
    feed = VersionsFeed(bench.store)
    bench.seal(1, life="one")
    assert look(feed) == ["sealed 1"]
    bench.seal(1, life="two")
    assert look(feed) == ["sealed 2", "ended 1"]
    bench.seal(1, life="three")
    bench.seal(1, life="four")
    assert look(feed) == ["sealed 3", "sealed 4", "ended 2", "ended 3"]
    assert look(feed) == []
    assert [line for line in look(VersionsFeed(bench.store)) if "ended" in line] == [
        "ended 1",
        "ended 2",
        "ended 3",
    ]


def test_what_was_discarded_is_no_version(bench: Bench) -> None:
    bench.store.begin(sync_begin(1)).discard(DiscardReason.EMPTY)
    bench.seal(2)
    bench.store.pin(2, "somebody", PinKind.EXPORT)
    assert look(VersionsFeed(bench.store)) == ["sealed 2", "discarded 1 empty as discarded/v1"]


def test_versions_that_are_over_are_not_read_again(
    make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(keep_newest=2)
    asked: list[int] = []
    records = VersionStore.records

    def counted(store: VersionStore, *, after: int = 0) -> list[VersionRecord]:
        found = records(store, after=after)
        asked.append(len(found))
        return found

    monkeypatch.setattr(VersionStore, "records", counted)
    feed = VersionsFeed(bench.store)
    seen: list[str] = []
    for version in range(1, 41):
        bench.seal(version)
        seen += look(feed)
        for number in range(1, version):
            bench.store.unpin(number, FRESH_OWNER)
        bench.store.collect()
    assert seen == [f"sealed {version}" for version in range(1, 41)]
    look(feed)
    assert asked[-1] == 3  # the two that are kept, and the one whose pin nobody has given back
    assert look(VersionsFeed(bench.store)) == seen
