"""Numbers are given out once and rise; states change once; pins are what keeps a version."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from live_eval.errors import NoSuchVersion, StoreError, VersionRefused
from live_eval.reasons import DiscardReason
from live_eval.store import FRESH_OWNER, Catalogue, Incarnation, Manifest, PinKind, VersionState


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    opened = Catalogue.open(tmp_path / "catalogue.sqlite", clock=FakeClock())
    yield opened
    opened.close()


def give(catalogue: Catalogue, incarnation_id: str, weight_version: int) -> int:
    incarnation = catalogue.register_incarnation(incarnation_id, weight_version)
    return catalogue.allocate(incarnation, weight_version, run_id="run", rollout_id=3, train_step=30)


def manifest(version: int, digest: str = "") -> Manifest:
    return Manifest(
        policy_version=version,
        weight_version=version,
        incarnation=1,
        run_id="run",
        num_tensors=2,
        num_bytes=20,
        digest=digest or f"digest of {version}",
        began_at=1.0,
        sealed_at=2.0,
        tensors=(),
    )


def sealed(catalogue: Catalogue, version: int, digest: str = "") -> int:
    number = give(catalogue, "life-1", version)
    catalogue.mark_sealed(manifest(number, digest), disk_bytes=100)
    return number


def refused(catalogue: Catalogue, incarnation_id: str, weight_version: int) -> str:
    with pytest.raises(VersionRefused) as caught:
        give(catalogue, incarnation_id, weight_version)
    assert caught.value.reason is DiscardReason.BAD_WEIGHT_VERSION
    return caught.value.detail


def test_the_first_incarnation_gives_weight_versions_out(catalogue: Catalogue) -> None:
    assert [give(catalogue, "life-1", version) for version in (3, 4, 9)] == [3, 4, 9]


def test_a_later_incarnation_continues_after_the_last_number_given(catalogue: Catalogue) -> None:
    for version in (1, 2, 12):
        give(catalogue, "life-1", version)
    assert [give(catalogue, "life-2", version) for version in (1, 2, 5)] == [13, 14, 17]
    assert [give(catalogue, "life-3", version) for version in (7, 8)] == [18, 19]


def test_a_number_that_was_discarded_counts_as_given(catalogue: Catalogue) -> None:
    give(catalogue, "life-1", 1)
    catalogue.mark_discarded(give(catalogue, "life-1", 2), DiscardReason.INCOMPLETE, "")
    assert give(catalogue, "life-2", 1) == 3


def test_numbers_go_on_after_the_catalogue_is_opened_again(tmp_path: Path) -> None:
    first = Catalogue.open(tmp_path / "c")
    give(first, "life-1", 5)
    first.close()
    second = Catalogue.open(tmp_path / "c")
    assert give(second, "life-1", 6) == 6
    assert "6 was given out" in refused(second, "life-1", 6)
    assert give(second, "life-2", 1) == 7
    second.close()


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, True, 1.0, "1", None])
def test_a_weight_version_that_is_no_positive_integer_is_refused(catalogue: Catalogue, number: int) -> None:
    assert "no positive integer" in refused(catalogue, "life-1", number)
    incarnation = catalogue.register_incarnation("life-1", 1)
    with pytest.raises(VersionRefused, match="no positive integer"):
        catalogue.allocate(incarnation, number)
    assert catalogue.versions() == []


@pytest.mark.parametrize("number", [7, 6, 1])
def test_a_weight_version_that_does_not_rise_is_refused(catalogue: Catalogue, number: int) -> None:
    give(catalogue, "life-1", 7)
    refused(catalogue, "life-1", number)
    assert [record.policy_version for record in catalogue.versions()] == [7]


def test_an_incarnation_that_was_followed_by_another_gives_nothing_out(catalogue: Catalogue) -> None:
    give(catalogue, "life-1", 1)
    give(catalogue, "life-2", 1)
    assert "has ended" in refused(catalogue, "life-1", 50)
    assert give(catalogue, "life-2", 2) == 3


def test_an_incarnation_is_registered_once(catalogue: Catalogue) -> None:
    give(catalogue, "life-1", 4)
    second = catalogue.register_incarnation("life-2", 1)
    assert second == Incarnation(number=2, incarnation_id="life-2", offset=4)
    assert catalogue.register_incarnation("life-2", 9) == second
    assert [incarnation.number for incarnation in catalogue.incarnations()] == [1, 2]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-1, 9)), max_size=30))
def test_policy_versions_rise_whatever_trainers_send(
    tmp_path_factory: pytest.TempPathFactory, syncs: list
) -> None:
    catalogue = Catalogue.open(tmp_path_factory.mktemp("c") / "c")
    given_out: list[int] = []
    for life, weight_version in syncs:
        try:
            given_out.append(give(catalogue, f"life-{life}", weight_version))
        except VersionRefused:
            continue
    assert given_out == sorted(set(given_out))
    assert [record.policy_version for record in catalogue.versions()] == given_out
    for record in catalogue.versions():
        if record.incarnation == 1:
            assert record.policy_version == record.weight_version
    catalogue.close()


def test_a_row_carries_what_the_sync_said(catalogue: Catalogue) -> None:
    record = catalogue.get(give(catalogue, "life-1", 1))
    assert (record.run_id, record.rollout_id, record.train_step) == ("run", 3, 30)
    assert (record.state, record.digest, record.sealed_at) == (VersionState.RECEIVING, "", None)
    with pytest.raises(NoSuchVersion, match="never given out"):
        catalogue.get(2)


def test_a_sealed_version_is_born_with_a_fresh_pin(catalogue: Catalogue) -> None:
    sealed(catalogue, 1)
    (pin,) = catalogue.pins(1)
    assert (pin.owner, pin.kind) == (FRESH_OWNER, PinKind.FRESH)
    assert catalogue.unpin(1, FRESH_OWNER)
    assert not catalogue.unpin(1, FRESH_OWNER)
    assert catalogue.pins() == []


def test_a_version_leaves_receiving_once(catalogue: Catalogue) -> None:
    sealed(catalogue, 1)
    assert not catalogue.mark_discarded(1, DiscardReason.INCOMPLETE, "")
    with pytest.raises(StoreError, match="not being received"):
        catalogue.mark_sealed(manifest(1), disk_bytes=1)
    discarded = give(catalogue, "life-1", 2)
    assert catalogue.mark_discarded(discarded, DiscardReason.EMPTY, "first")
    assert not catalogue.mark_discarded(discarded, DiscardReason.INCOMPLETE, "second")
    assert catalogue.get(discarded).detail == "first"
    assert len(catalogue.discarded()) == 1


def test_equal_digests_are_flagged_with_the_newest_earlier_version(catalogue: Catalogue) -> None:
    for version, digest in enumerate("abaa", start=1):
        sealed(catalogue, version, digest)
    assert [record.same_as for record in catalogue.versions()] == [None, None, 1, 3]


def test_discards_are_listed_in_their_order_even_if_the_clock_goes_back(tmp_path: Path) -> None:
    clock = FakeClock(now=1000.0)
    catalogue = Catalogue.open(tmp_path / "c", clock=clock)
    number = give(catalogue, "life-1", 1)
    catalogue.mark_discarded(number, DiscardReason.INCOMPLETE, "missing: x")
    clock.now = 5.0
    catalogue.sync_refused(
        incarnation_id="life-1", weight_version=-(2**70), reason=DiscardReason.BAD_WEIGHT_VERSION, detail="-1"
    )
    first, second = catalogue.discarded()
    assert (first.policy_version, first.weight_version, first.reason, first.train_step) == (
        1,
        1,
        "incomplete",
        30,
    )
    assert (second.policy_version, second.incarnation_id, second.reason) == (
        None,
        "life-1",
        "bad_weight_version",
    )
    catalogue.close()


def test_only_a_sealed_version_can_be_pinned(catalogue: Catalogue) -> None:
    number = give(catalogue, "life-1", 1)
    for version in (number, 99):
        with pytest.raises(NoSuchVersion, match="cannot be pinned"):
            catalogue.pin(version, "job", PinKind.WAITING)


def test_an_owner_has_one_pin_and_may_upgrade_it(catalogue: Catalogue) -> None:
    sealed(catalogue, 1)
    catalogue.pin(1, "job", PinKind.WAITING)
    catalogue.pin(1, "job", PinKind.WAITING)
    assert catalogue.upgrade(1, "job")
    assert [pin.kind for pin in catalogue.pins(1) if pin.owner == "job"] == [PinKind.RUNNING]
    assert not catalogue.upgrade(1, "nobody")
    assert not catalogue.upgrade(2, "job")


def test_a_file_that_is_no_database_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"no database, for sure" * 100)
    with pytest.raises(StoreError, match="not a usable catalogue"):
        Catalogue.open(tmp_path / "c")
    with pytest.raises(StoreError, match="cannot be opened"):
        Catalogue.open(tmp_path / "no" / "such" / "directory")


def test_a_transaction_that_fails_leaves_nothing(catalogue: Catalogue) -> None:
    with pytest.raises(StoreError), catalogue.database.write() as db:
        db.execute("INSERT INTO pins VALUES (1, 'x', 'fresh')")
        db.execute("INSERT INTO nowhere VALUES (1)")
    assert catalogue.pins() == []


def test_what_is_given_out_is_in_a_log_that_is_synced(catalogue: Catalogue) -> None:
    assert catalogue.database.read("PRAGMA journal_mode")[0][0] == "wal"
    assert catalogue.database.read("PRAGMA synchronous")[0][0] == 2  # FULL
    assert sqlite3.sqlite_version_info >= (3, 24)


def test_what_a_sync_held_the_trainer_is_known_of_versions_and_of_discards(catalogue: Catalogue) -> None:
    assert catalogue.total_held_s() is None
    sealed(catalogue, 1)
    for held_s in (0.25, 0.5, 0.125):  # three sources at once
        catalogue.note_held("life-1", 1, held_s)
    catalogue.note_held("life-1", 2, 1.0)
    catalogue.note_held("life-2", 1, 4.0)
    catalogue.note_held("life-1", 0, 8.0)  # no weight version
    catalogue.sync_refused(
        incarnation_id="life-1", weight_version=2, reason=DiscardReason.PUBLISHER_DEADLINE, detail=""
    )
    assert sealed(catalogue, 3) == 3
    assert [record.held_s for record in catalogue.versions()] == [0.5, None]
    assert [record.held_s for record in catalogue.discarded()] == [1.0]
    assert catalogue.total_held_s() == 5.5
