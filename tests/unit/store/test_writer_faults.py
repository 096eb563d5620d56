"""What cannot be a version is discarded with one reason, and no file is left."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import numpy as np
import pytest
from fakes.checkpoints import EMBED, NORM, ODD, PLAIN, PROJ, Model, bucket, fill, seal, send, sync_begin
from fakes.opened_store import assert_discarded, open_store

from live_eval.errors import CorruptVersion, StoreError, StoreFull, VersionRefused
from live_eval.reasons import DiscardReason
from live_eval.store import (
    Catalogue,
    StagedState,
    VersionState,
    VersionStore,
)
from live_eval.store.directories import StoreDirectories
from protocol.messages import TensorMeta

# --- what is refused --------------------------------------------------------------------


def test_a_seal_without_a_bucket_is_empty(store: VersionStore) -> None:
    with pytest.raises(VersionRefused):
        store.begin(sync_begin(1)).seal()
    assert_discarded(store, 1, DiscardReason.EMPTY)


def test_a_missing_tensor_is_incomplete(store: VersionStore, model: Model) -> None:
    staged = store.begin(sync_begin(1))
    send(staged, model, seed=1, without=(PROJ.name,))
    with pytest.raises(VersionRefused, match=PROJ.name):
        staged.seal()
    assert_discarded(store, 1, DiscardReason.INCOMPLETE)


def test_a_lost_scale_is_incomplete_and_the_next_sync_is_whole(tmp_path: Path) -> None:
    model = Model(metas=ODD)
    with open_store(tmp_path, model.base(tmp_path / "base")) as store:
        seal(store, model, 1)
        staged = store.begin(sync_begin(2))
        send(staged, model, seed=2, without=("odd.e4m3_scale_inv",))
        with pytest.raises(VersionRefused, match="scale_inv"):
            staged.seal()
        assert_discarded(store, 2, DiscardReason.INCOMPLETE)
        seal(store, model, 3)
        assert [record.policy_version for record in store.sealed()] == [1, 3]


def test_a_bucket_that_was_never_filled_is_a_lost_payload(store: VersionStore, model: Model) -> None:
    staged = store.begin(sync_begin(1))
    send(staged, model, seed=1, without=(PROJ.name,))
    staged.allocate(bucket(9, (PROJ,)))
    with pytest.raises(VersionRefused, match="bucket 9"):
        staged.seal()
    assert_discarded(store, 1, DiscardReason.PAYLOAD_LOST)


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        (TensorMeta("../../etc/passwd", "uint8", (1,)), DiscardReason.UNKNOWN_TENSOR),
        (TensorMeta("__metadata__", "uint8", (1,)), DiscardReason.UNKNOWN_TENSOR),
        (TensorMeta(NORM.name, "float4", (8,)), DiscardReason.WRONG_DTYPE),
        (TensorMeta(NORM.name, "float32", (1 << 40,)), DiscardReason.WRONG_SHAPE),
    ],
)
def test_a_tensor_that_is_not_the_models_gets_no_memory(
    store: VersionStore, meta: TensorMeta, reason: DiscardReason
) -> None:
    staged = store.begin(sync_begin(1))
    with pytest.raises(VersionRefused):
        staged.allocate(bucket(0, (EMBED, meta)))
    assert_discarded(store, 1, reason)


def test_a_bucket_comes_once(store: VersionStore) -> None:
    staged = store.begin(sync_begin(1))
    staged.allocate(bucket(0, (NORM,)))
    with pytest.raises(VersionRefused, match="came twice"):
        staged.allocate(bucket(0, (PROJ,)))
    assert_discarded(store, 1, DiscardReason.OUT_OF_ORDER)


def test_a_bucket_is_filled_once_and_only_if_it_was_allocated(store: VersionStore, model: Model) -> None:
    staged = store.begin(sync_begin(1))
    header = bucket(0, (NORM,))
    fill(staged, header, [model.data(NORM.name)])
    with pytest.raises(StoreError, match="not waiting"):
        staged.filled(header)
    assert_discarded(store, 1, DiscardReason.STORE_FAILED)


def test_an_ended_version_takes_nothing_more(store: VersionStore, model: Model) -> None:
    staged = store.begin(sync_begin(1))
    staged.discard(DiscardReason.PUBLISHER_ABORTED, "the trainer said so")
    staged.discard(DiscardReason.SOURCE_DEADLINE, "too late to matter")
    assert staged.state is StagedState.DISCARDED
    for action in (lambda: staged.allocate(bucket(0, (NORM,))), staged.seal):
        with pytest.raises(StoreError, match="discarded already"):
            action()
    assert_discarded(store, 1, DiscardReason.PUBLISHER_ABORTED)
    assert store.discarded()[0].detail == "the trainer said so"

    sealed = store.begin(sync_begin(2))
    send(sealed, model, seed=2)
    sealed.seal()
    sealed.discard(DiscardReason.PUBLISHER_ABORTED)
    with pytest.raises(StoreError, match="sealed already"):
        sealed.seal()
    assert store.get(2).state is VersionState.SEALED
    store.verify(2)


def test_memory_that_was_handed_out_outlives_its_version(store: VersionStore) -> None:
    staged = store.begin(sync_begin(1))
    (view,) = staged.allocate(bucket(0, (NORM,)))
    staged.discard(DiscardReason.SOURCE_DEADLINE)
    view[:] = 1  # a receive that was posted may still write
    assert int(view.sum()) == view.size


def test_a_new_sync_ends_the_open_one(store: VersionStore, model: Model) -> None:
    first = store.begin(sync_begin(1))
    fill(first, bucket(0, (NORM,)), [model.data(NORM.name)])
    second = store.begin(sync_begin(2))
    assert first.state is StagedState.DISCARDED
    assert (store.get(1).reason, store.get(1).detail) == ("superseded_by_begin", "policy version 2 began")
    send(second, model, seed=2)
    second.seal()
    assert [record.policy_version for record in store.sealed()] == [2]


# --- faults of disk and database --------------------------------------------------------


def test_a_flush_that_fails_fails_the_version(
    store: VersionStore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    staged = store.begin(sync_begin(1))
    with monkeypatch.context() as patch:
        patch.setattr("live_eval.store.shard.os.fdatasync", broken)
        send(staged, model, seed=1)
        with pytest.raises(StoreError, match="Input/output error"):
            staged.seal()
    assert_discarded(store, 1, DiscardReason.STORE_FAILED)
    seal(store, model, 2)
    store.verify(2)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_that_fills_up_while_space_is_claimed_is_a_full_store(
    store: VersionStore, model: Model, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        raise OSError(number, "full")

    staged = store.begin(sync_begin(1))
    with monkeypatch.context() as patch:
        patch.setattr("live_eval.store.shard.os.posix_fallocate", full)
        with pytest.raises(StoreFull):
            staged.allocate(bucket(0, PLAIN))
    assert_discarded(store, 1, DiscardReason.STORE_FULL)
    seal(store, model, 2)


def test_a_disk_that_fills_up_at_the_rename_is_a_full_store(
    store: VersionStore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: StoreDirectories, version: int) -> Path:
        raise OSError(errno.ENOSPC, "full")

    staged = store.begin(sync_begin(1))
    send(staged, model, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(StoreDirectories, "publish", full)
        with pytest.raises(StoreFull):
            staged.seal()
    assert_discarded(store, 1, DiscardReason.STORE_FULL)


def test_a_record_that_cannot_be_made_takes_the_renamed_version_back(
    store: VersionStore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Catalogue, manifest: object, *, disk_bytes: int) -> None:
        raise StoreError("database is locked")

    staged = store.begin(sync_begin(1))
    send(staged, model, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(Catalogue, "mark_sealed", broken)
        with pytest.raises(StoreError, match="locked"):
            staged.seal()
    assert_discarded(store, 1, DiscardReason.STORE_FAILED)


def test_a_record_that_was_made_although_its_commit_failed_counts(
    store: VersionStore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Catalogue.mark_sealed

    def late(self: Catalogue, manifest: object, *, disk_bytes: int) -> None:
        real(self, manifest, disk_bytes=disk_bytes)  # type: ignore[arg-type]
        raise StoreError("disk I/O error")

    staged = store.begin(sync_begin(1))
    send(staged, model, seed=1)
    with monkeypatch.context() as patch:
        patch.setattr(Catalogue, "mark_sealed", late)
        staged.seal()
    assert staged.state is StagedState.SEALED
    store.verify(1)


def test_what_arrives_is_flushed_before_it_is_sealed(
    store: VersionStore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    publish = StoreDirectories.publish

    def fdatasync(descriptor: int) -> None:
        order.append("data")

    def renamed(self: StoreDirectories, version: int) -> Path:
        order.append("rename")
        return publish(self, version)

    monkeypatch.setattr("live_eval.store.shard.os.fdatasync", fdatasync)
    monkeypatch.setattr(StoreDirectories, "publish", renamed)
    seal(store, model, 1)
    assert order == ["data", "data", "rename"]


def test_a_bucket_that_is_filled_is_unmapped_before_the_sync_is_committed(
    store: VersionStore, model: Model
) -> None:
    staged = store.begin(sync_begin(1))
    mapped = "shard-00001.safetensors"
    views = staged.allocate(bucket(0, PLAIN))
    for view, meta in zip(views, PLAIN, strict=True):
        view[:] = np.frombuffer(model.data(meta.name, 1), dtype=np.uint8)
    del view, views
    assert mapped in Path("/proc/self/maps").read_text()
    staged.filled(bucket(0, PLAIN))
    deadline = time.monotonic() + 30.0
    while mapped in Path("/proc/self/maps").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    staged.seal()
    store.verify(1)


def test_a_manifest_of_another_version_is_corrupt(store: VersionStore, model: Model) -> None:
    for version in (1, 2):
        seal(store, model, version)
    path = store.path(2) / "manifest.json"
    path.chmod(0o644)
    path.write_bytes((store.path(1) / "manifest.json").read_bytes())
    with pytest.raises(CorruptVersion, match="not that of policy version 2"):
        store.verify(2)
