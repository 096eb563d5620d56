"""What the store keeps, gives up and refuses, seen through its public face."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.checkpoints import EMBED, NORM, Model, bucket, fill, seal, send, sync_begin

from live_eval.errors import ConfigError, NoSuchVersion, StoreError, StoreFull, VersionRefused
from live_eval.reasons import DiscardReason
from live_eval.store import (
    FRESH_OWNER,
    BaseCheckpoint,
    CollectReason,
    PinKind,
    VersionState,
    VersionStore,
)
from live_eval.store.directories import tree_bytes
from protocol.messages import TensorMeta

MIB = 1 << 20
BULK = TensorMeta("model.bulk.weight", "uint8", (4 * MIB,))
BIG = Model(metas=(EMBED, NORM, BULK), tied=True)
ROOM_FOR_TWO = 11 * MIB
"""Bytes that hold two versions of BIG, with what one reserves while it is received, and not three."""


@pytest.fixture
def big_base(tmp_path: Path) -> BaseCheckpoint:
    return BIG.base(tmp_path / "big")


def small_store(tmp_path: Path, base: BaseCheckpoint, *, keep_newest: int = 5) -> VersionStore:
    return VersionStore.open(
        tmp_path / "small", base=base, max_bytes=ROOM_FOR_TWO, keep_newest=keep_newest, writer=True
    )


def numbers(store: VersionStore) -> list[int]:
    return [record.policy_version for record in store.sealed()]


def on_disk(store: VersionStore) -> int:
    versions = (path for top in ("versions", "staging") for path in (store.root / top).iterdir())
    return sum(map(tree_bytes, (*versions, store.root / "spare")))


# --- opening ----------------------------------------------------------------------------


@pytest.mark.parametrize(("max_bytes", "keep_newest"), [(0, 1), (-1, 1), (10, 0)])
def test_settings_that_cannot_work_are_refused(
    tmp_path: Path, base: BaseCheckpoint, max_bytes: int, keep_newest: int
) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        VersionStore.open(
            tmp_path / "s", base=base, max_bytes=max_bytes, keep_newest=keep_newest, writer=True
        )


def test_a_writer_needs_a_base(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="base checkpoint"):
        VersionStore.open(tmp_path / "s", max_bytes=1, keep_newest=1, writer=True)


def test_a_reader_sees_what_the_writer_seals_and_cannot_write(store: VersionStore, model: Model) -> None:
    with VersionStore.open(store.root, max_bytes=1 << 30, keep_newest=2) as reader:
        assert reader.stable() is None
        seal(store, model, 1)
        stable = reader.stable()
        assert stable is not None
        assert stable.policy_version == 1
        assert reader.verify(1) == store.manifest(1)
        with pytest.raises(StoreError, match="for reading"):
            reader.begin(sync_begin(2))


def test_there_is_one_writer_at_a_time(
    store: VersionStore, base: BaseCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("live_eval.store.recovery.WRITER_WAIT_S", 0.1)
    with pytest.raises(StoreError, match="another process"):
        VersionStore.open(store.root, base=base, max_bytes=1, keep_newest=1, writer=True)
    store.close()
    VersionStore.open(store.root, base=base, max_bytes=1, keep_newest=1, writer=True).close()


def test_a_store_whose_catalogue_is_lost_is_not_touched(
    store: VersionStore, base: BaseCheckpoint, model: Model
) -> None:
    seal(store, model, 1)
    path = store.path(1)
    store.close()
    for file in store.root.glob("catalogue.sqlite*"):
        file.unlink()
    with pytest.raises(StoreError, match="does not know, 1 among"):
        VersionStore.open(store.root, base=base, max_bytes=1 << 30, keep_newest=1, writer=True)
    assert (path / "manifest.json").exists()


# --- numbers ----------------------------------------------------------------------------


def test_numbers_go_on_over_incarnations_and_restarts(
    tmp_path: Path, base: BaseCheckpoint, model: Model
) -> None:
    lives = [("life-1", (1, 2)), ("life-2", (1, 2)), ("life-3", (1,))]
    for life, versions in lives:
        with VersionStore.open(
            tmp_path / "s", base=base, max_bytes=1 << 30, keep_newest=9, writer=True
        ) as opened:
            for version in versions:
                seal(opened, model, version, incarnation=life)
    with VersionStore.open(tmp_path / "s", max_bytes=1 << 30, keep_newest=9) as reader:
        assert [(r.policy_version, r.incarnation, r.weight_version) for r in reader.sealed()] == [
            (1, 1, 1),
            (2, 1, 2),
            (3, 2, 1),
            (4, 2, 2),
            (5, 3, 1),
        ]
        assert [incarnation.incarnation_id for incarnation in reader.incarnations()] == [
            "life-1",
            "life-2",
            "life-3",
        ]


@pytest.mark.parametrize("number", [0, -3, 2])
def test_a_bad_weight_version_is_refused_at_begin_and_recorded(
    store: VersionStore, model: Model, number: int
) -> None:
    seal(store, model, 2)
    with pytest.raises(VersionRefused):
        store.begin(sync_begin(number))
    (discard,) = store.discarded()
    assert (discard.policy_version, discard.weight_version, discard.reason) == (
        None,
        number,
        DiscardReason.BAD_WEIGHT_VERSION,
    )
    assert numbers(store) == [2]
    seal(store, model, 3)


def test_a_refused_begin_does_not_end_the_open_sync(store: VersionStore, model: Model) -> None:
    staged = store.begin(sync_begin(5))
    with pytest.raises(VersionRefused):
        store.begin(sync_begin(5))
    send(staged, model, seed=1)
    staged.seal()
    assert numbers(store) == [5]


def test_a_sync_that_its_receiver_refused_is_recorded(store: VersionStore) -> None:
    store.sync_refused(sync_begin(3, rollout_id=8), DiscardReason.PUBLISHER_DEADLINE, "no slot was free")
    (discard,) = store.discarded()
    assert (discard.reason, discard.detail, discard.rollout_id) == (
        "publisher_deadline",
        "no slot was free",
        8,
    )


def test_a_version_with_the_bytes_of_an_earlier_one_is_flagged(store: VersionStore, model: Model) -> None:
    for version, seed in ((1, 7), (2, 8), (3, 7)):
        seal(store, model, version, seed=seed)
    assert [record.same_as for record in store.sealed()] == [None, None, 1]


# --- retention --------------------------------------------------------------------------


def test_versions_that_nobody_needs_go_beyond_the_newest(store: VersionStore, model: Model) -> None:
    for version in range(1, 6):
        seal(store, model, version)
    for version in range(1, 6):
        store.unpin(version, FRESH_OWNER)
    path = store.path(1)
    assert store.collect() == [(version, CollectReason.RETENTION) for version in (1, 2, 3)]
    assert numbers(store) == [4, 5]
    assert not path.exists()
    assert store.get(1).state is VersionState.COLLECTED
    with pytest.raises(NoSuchVersion, match="collected: retention"):
        store.path(1)
    assert store.dropped() == []


def test_a_pinned_version_is_kept_whatever_its_age(store: VersionStore, model: Model) -> None:
    for version in range(1, 6):
        seal(store, model, version)
        store.unpin(version, FRESH_OWNER)
        if version in (1, 2):
            store.pin(version, "job", PinKind.WAITING)
    store.collect()
    assert numbers(store) == [1, 2, 4, 5]
    assert store.upgrade(1, "job")
    store.unpin(2, "job")
    store.collect()
    assert numbers(store) == [1, 4, 5]
    store.verify(1)


def test_a_fresh_version_is_not_collected_before_somebody_decided(store: VersionStore, model: Model) -> None:
    for version in range(1, 5):
        seal(store, model, version)
    assert store.collect() == []
    assert numbers(store) == [1, 2, 3, 4]


def test_the_budget_is_never_exceeded_and_a_spare_version_goes_first(
    tmp_path: Path, big_base: BaseCheckpoint
) -> None:
    with small_store(tmp_path, big_base) as store:
        for version in (1, 2, 3, 4):
            seal(store, BIG, version)
            store.unpin(version, FRESH_OWNER)
            assert on_disk(store) <= store.used_bytes() <= ROOM_FOR_TWO
        assert numbers(store) == [3, 4]
        assert store.get(2).reason == CollectReason.MAKE_ROOM
        assert store.dropped() == []


def test_a_full_store_drops_the_oldest_that_waits_and_never_the_running_one(
    tmp_path: Path, big_base: BaseCheckpoint
) -> None:
    with small_store(tmp_path, big_base) as store:
        seal(store, BIG, 1)
        store.pin(1, "job-1", PinKind.RUNNING)
        seal(store, BIG, 2)
        store.pin(2, "job-2", PinKind.WAITING)
        seal(store, BIG, 3)
        assert numbers(store) == [1, 3]
        assert [record.policy_version for record in store.dropped()] == [2]
        assert store.get(2).reason == CollectReason.STORE_FULL
        assert not store.upgrade(2, "job-2")
        assert store.pins(2) == []
        store.verify(1)


def test_a_sync_that_cannot_fit_is_discarded_and_the_next_one_is_served(
    tmp_path: Path, big_base: BaseCheckpoint
) -> None:
    with small_store(tmp_path, big_base) as store:
        for version in (1, 2):
            seal(store, BIG, version)
            store.pin(version, "job", PinKind.RUNNING)
        with pytest.raises(StoreFull, match="Raise the budget"):
            store.begin(sync_begin(3))
        assert (store.get(3).state, store.get(3).reason) == (VersionState.DISCARDED, DiscardReason.STORE_FULL)
        assert list((store.root / "staging").iterdir()) == []
        assert numbers(store) == [1, 2]
        store.unpin(1, "job")
        seal(store, BIG, 4)
        assert numbers(store) == [2, 4]


def test_a_version_that_turns_out_larger_than_the_base_asks_for_more_room(tmp_path: Path) -> None:
    embedding = TensorMeta(EMBED.name, "uint8", (3 * MIB,))
    model = Model(metas=(embedding, NORM), tied=True)
    base = model.base(tmp_path / "base")
    head = TensorMeta("lm_head.weight", "uint8", (3 * MIB,))
    for max_bytes in (5 * MIB, 8 * MIB):
        with VersionStore.open(
            tmp_path / str(max_bytes), base=base, max_bytes=max_bytes, keep_newest=1, writer=True
        ) as store:
            staged = store.begin(sync_begin(1))
            send(staged, model, seed=1)
            if max_bytes == 8 * MIB:
                fill(staged, bucket(9, (head,)), [model.data(EMBED.name, 1)])
                staged.seal()
                assert on_disk(store) <= store.used_bytes() <= max_bytes
            else:
                with pytest.raises(StoreFull):
                    staged.allocate(bucket(9, (head,)))
                assert on_disk(store) == 0


def test_a_version_whose_small_files_take_more_than_was_reserved_asks_at_seal(
    tmp_path: Path, base: BaseCheckpoint, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("live_eval.store.writer.BYTES_A_TENSOR", 0)
    monkeypatch.setattr("live_eval.store.writer.BYTES_A_VERSION", 0)
    for max_bytes, fits in ((8000, False), (MIB, True)):
        with VersionStore.open(
            tmp_path / str(max_bytes), base=base, max_bytes=max_bytes, keep_newest=1, writer=True
        ) as store:
            if fits:
                seal(store, model, 1)
                assert store.used_bytes() == on_disk(store) > 8000
            else:
                with pytest.raises(StoreFull):
                    seal(store, model, 1)
                assert store.get(1).reason == DiscardReason.STORE_FULL
                assert on_disk(store) == 0


def test_bytes_that_the_disk_lacks_are_refused_before_one_is_written(
    tmp_path: Path, big_base: BaseCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with VersionStore.open(
        tmp_path / "s", base=big_base, max_bytes=1 << 40, keep_newest=1, writer=True
    ) as store:
        seal(store, BIG, 1)
        store.pin(1, "job", PinKind.RUNNING)
        monkeypatch.setattr("live_eval.store.room.free_bytes", lambda path: 6 * MIB)
        with pytest.raises(StoreFull, match="the disk could give it"):
            store.begin(sync_begin(2))
        monkeypatch.setattr("live_eval.store.room.free_bytes", lambda path: 10 * MIB)
        seal(store, BIG, 3)


def test_hard_links_are_counted_in_full(tmp_path: Path, big_base: BaseCheckpoint) -> None:
    with VersionStore.open(
        tmp_path / "s", base=big_base, max_bytes=1 << 30, keep_newest=5, writer=True
    ) as store:
        for version in (1, 2, 3):
            seal(store, BIG, version, seed=1)
        assert store.used_bytes() == on_disk(store) > 12 * MIB


def test_a_lower_budget_is_met_at_the_next_start(tmp_path: Path, big_base: BaseCheckpoint) -> None:
    with VersionStore.open(
        tmp_path / "s", base=big_base, max_bytes=1 << 30, keep_newest=5, writer=True
    ) as store:
        for version in (1, 2, 3, 4):
            seal(store, BIG, version)
            if version != 2:
                store.unpin(version, FRESH_OWNER)
    with VersionStore.open(
        tmp_path / "s", base=big_base, max_bytes=ROOM_FOR_TWO, keep_newest=5, writer=True
    ) as store:
        assert numbers(store) == [2, 4]
        assert on_disk(store) <= ROOM_FOR_TWO


# --- after a crash ----------------------------------------------------------------------


def test_a_sync_that_a_crash_cut_short_is_discarded_at_start(
    tmp_path: Path, store: VersionStore, base: BaseCheckpoint, model: Model
) -> None:
    seal(store, model, 1)
    staged = store.begin(sync_begin(2))
    fill(staged, bucket(0, (NORM,)), [model.data(NORM.name)])
    store.close()
    (store.root / "staging" / "left-over").write_bytes(b"x")
    with VersionStore.open(store.root, max_bytes=1 << 30, keep_newest=2) as reader:
        assert reader.get(2).state is VersionState.RECEIVING  # a reader ends nothing
        assert list((store.root / "staging").iterdir()) != []
    with VersionStore.open(store.root, base=base, max_bytes=1 << 30, keep_newest=2, writer=True) as again:
        assert (again.get(2).state, again.get(2).reason) == (VersionState.DISCARDED, "receiver_restarted")
        assert list((store.root / "staging").iterdir()) == []
        assert numbers(again) == [1]
        seal(again, model, 3)
        again.verify(3)


def test_files_of_what_was_collected_or_discarded_are_removed_at_start(
    store: VersionStore, base: BaseCheckpoint, model: Model
) -> None:
    for version in (1, 2, 3, 4):
        seal(store, model, version)
    store.begin(sync_begin(5)).discard(DiscardReason.PUBLISHER_ABORTED)
    with store._catalogue.database.write() as db:  # died after the decision, before the removal
        db.execute("UPDATE versions SET state = 'collected', reason = 'retention' WHERE policy_version = 1")
        db.execute("DELETE FROM pins WHERE policy_version = 1")
    (store.root / "versions" / "v000005").mkdir()  # died after the rename was taken back in the record only
    before = store.used_bytes()
    store.close()
    with VersionStore.open(store.root, base=base, max_bytes=1 << 30, keep_newest=9, writer=True) as again:
        assert sorted(path.name for path in (store.root / "versions").iterdir()) == [
            "v000002",
            "v000003",
            "v000004",
        ]
        assert again.used_bytes() < before
