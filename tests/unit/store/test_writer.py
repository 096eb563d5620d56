"""A version is sealed whole and bit for bit, or discarded with one reason and no file left."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors
from fakes.checkpoints import EMBED, HEAD, NORM, ODD, PLAIN, PROJ, Model, bucket, fill, seal, send, sync_begin

from live_eval.digests import tensor_digest
from live_eval.errors import CorruptVersion, NoSuchVersion, StoreError, StoreFull, VersionRefused
from live_eval.reasons import DiscardReason
from live_eval.store import (
    BaseCheckpoint,
    Catalogue,
    StagedState,
    VersionState,
    VersionStore,
)
from live_eval.store.directories import StoreDirectories
from live_eval.store.written_shard import FileRange
from protocol.dtypes import DTYPES
from protocol.messages import TensorMeta

MTP = TensorMeta("model.mtp.0.proj.weight", "bfloat16", (4, 4))


def open_store(tmp_path: Path, base: BaseCheckpoint) -> VersionStore:
    return VersionStore.open(tmp_path / "store", base=base, max_bytes=1 << 30, keep_newest=5, writer=True)


def contents(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Every tensor of a directory as the safetensors library reads it: name -> dtype, shape, bytes."""
    found: dict[str, tuple[str, list[int], bytes]] = {}
    for file in path.glob("*.safetensors"):
        for name, tensor in safetensors.deserialize(file.read_bytes()):
            assert name not in found
            found[name] = (tensor["dtype"], tensor["shape"], bytes(tensor["data"]))
    return found


def assert_discarded(store: VersionStore, version: int, reason: DiscardReason) -> None:
    """It is on record and on record only."""
    record = store.get(version)
    assert (record.state, record.reason) == (VersionState.DISCARDED, reason)
    assert store.discarded()[-1].reason == reason
    with pytest.raises(NoSuchVersion):
        store.path(version)
    root = StoreDirectories(store.root)
    assert list(root.staging.iterdir()) == []
    assert version not in root.version_numbers()


@pytest.mark.parametrize("bucket_size", [1, 2, 100])
def test_every_dtype_arrives_bit_for_bit(tmp_path: Path, bucket_size: int) -> None:
    model = Model(metas=ODD)
    with open_store(tmp_path, model.base(tmp_path / "base")) as store:
        staged = store.begin(sync_begin(1))
        send(staged, model, seed=7, bucket_size=bucket_size)
        manifest = staged.seal()
        found = contents(store.path(1))
        assert found == {
            meta.name: (DTYPES[meta.dtype].safetensors, list(meta.shape), model.data(meta.name, 7))
            for meta in ODD
        }
        store.verify(1)
    assert manifest.num_tensors == len(ODD)
    assert manifest.num_bytes == sum(meta.num_bytes for meta in ODD)
    assert {t.name: t.digest for t in manifest.tensors} == {
        meta.name: tensor_digest(model.data(meta.name, 7)) for meta in ODD
    }


def test_signalling_nan_bits_survive(tmp_path: Path) -> None:
    data = np.array([0x7FA00001] * 8, dtype=np.uint32).tobytes()  # a conversion would set the quiet bit
    model = Model(override={NORM.name: data})
    with open_store(tmp_path, model.base(tmp_path / "base")) as store:
        seal(store, model, 1)
        assert contents(store.path(1))[NORM.name][2] == data


def test_views_are_flat_writable_bytes_in_header_order(store: VersionStore) -> None:
    staged = store.begin(sync_begin(1))
    views = staged.allocate(bucket(0, (NORM, EMBED, PROJ)))
    assert [(view.dtype, view.shape) for view in views] == [
        (np.dtype(np.uint8), (meta.num_bytes,)) for meta in (NORM, EMBED, PROJ)
    ]
    for view, meta in zip(views, (NORM, EMBED, PROJ), strict=True):
        view.view(np.uint8 if DTYPES[meta.dtype].num_bytes == 1 else f"u{DTYPES[meta.dtype].num_bytes}")[
            :
        ] = 1


def test_a_version_directory_is_read_only_and_complete(store: VersionStore, model: Model) -> None:
    seal(store, model, 1)
    path = store.path(1)
    assert path.name == "v000001"
    assert stat.S_IMODE(path.stat().st_mode) == 0o555
    files = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.iterdir()}
    assert files == dict.fromkeys(
        (
            "config.json",
            "manifest.json",
            "model.safetensors.index.json",
            "shard-00001.safetensors",
            "shard-00002.safetensors",
            "tokenizer.json",
        ),
        0o444,
    )
    index = json.loads((path / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == {meta.name for meta in PLAIN}
    assert index["metadata"]["total_size"] == sum(meta.num_bytes for meta in PLAIN)


def test_the_manifest_says_what_the_sync_said(store: VersionStore, model: Model) -> None:
    staged = store.begin(sync_begin(4, rollout_id=9))
    send(staged, model, seed=1)
    manifest = staged.seal()
    assert store.manifest(4) == manifest
    assert (manifest.policy_version, manifest.weight_version, manifest.incarnation) == (4, 4, 1)
    assert (manifest.run_id, manifest.rollout_id, manifest.train_step) == ("run", 9, 40)
    assert manifest.began_at <= manifest.sealed_at
    record = store.get(4)
    assert (record.digest, record.num_bytes, record.num_tensors) == (
        manifest.digest,
        manifest.num_bytes,
        manifest.num_tensors,
    )


def test_digests_of_the_caller_are_taken_as_they_are(store: VersionStore, model: Model) -> None:
    staged = store.begin(sync_begin(1))
    header = bucket(0, PLAIN)
    for view, meta in zip(staged.allocate(header), PLAIN, strict=True):
        view[:] = np.frombuffer(model.data(meta.name), dtype=np.uint8)
    digests = [tensor_digest(model.data(meta.name)) for meta in PLAIN]
    assert staged.filled(header, digests) == digests
    assert staged.digests == {meta.name: digest for meta, digest in zip(PLAIN, digests, strict=True)}
    staged.seal()
    store.verify(1)


def test_a_bucket_that_is_written_to_a_file_is_the_same_version(tmp_path: Path) -> None:
    model = Model(metas=ODD)
    with open_store(tmp_path, model.base(tmp_path / "base")) as store:
        mapped = seal(store, model, 1)
        staged = store.begin(sync_begin(2))
        header = bucket(0, ODD)
        for place, meta in zip(staged.allocate_ranges(header), ODD, strict=True):
            assert isinstance(place, FileRange)
            assert len(place) == meta.num_bytes
            place.write(np.frombuffer(model.data(meta.name, 1), dtype=np.uint8), 0)
        staged.filled(header, [tensor_digest(model.data(meta.name, 1)) for meta in ODD])
        assert staged.seal().digest == mapped.digest
        assert contents(store.path(2)) == contents(store.path(1))


def test_a_bucket_that_is_written_to_a_file_needs_its_digests(store: VersionStore) -> None:
    staged = store.begin(sync_begin(1))
    staged.allocate_ranges(bucket(0, PLAIN))
    with pytest.raises(StoreError, match="needs its digests"):
        staged.filled(bucket(0, PLAIN))
    assert staged.state is StagedState.DISCARDED


def test_what_is_written_goes_to_disk_while_the_rest_arrives(
    store: VersionStore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("live_eval.store.written_shard.FLUSH_BYTES", 1)
    synced: list[int] = []
    fdatasync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: (synced.append(1), fdatasync(descriptor)))
    staged = store.begin(sync_begin(1))
    header = bucket(0, PLAIN)
    for place, meta in zip(staged.allocate_ranges(header), PLAIN, strict=True):
        assert isinstance(place, FileRange)
        place.write(np.frombuffer(model.data(meta.name), dtype=np.uint8), 0)
    staged.filled(header, [tensor_digest(model.data(meta.name)) for meta in PLAIN])
    staged.seal()
    assert len(synced) > 1  # before the end, too
    store.verify(1)


def test_a_tensor_that_comes_again_is_compared_and_not_written(store: VersionStore, model: Model) -> None:
    staged = store.begin(sync_begin(1))
    send(staged, model, seed=0)
    (place,) = staged.allocate_ranges(bucket(0, (PROJ,), source="pp_1"))
    assert isinstance(place, np.ndarray)
    place[:] = np.frombuffer(model.data(PROJ.name), dtype=np.uint8)
    staged.filled(bucket(0, (PROJ,), source="pp_1"))
    staged.seal()
    store.verify(1)


def test_buckets_of_several_sources_interleave(store: VersionStore, model: Model) -> None:
    staged = store.begin(sync_begin(1))
    one, two = bucket(0, (EMBED, NORM), source="pp_0"), bucket(0, (PROJ, HEAD), source="pp_1")
    views = [*staged.allocate(one), *staged.allocate(two)]
    for view, meta in zip(views, (EMBED, NORM, PROJ, HEAD), strict=True):
        view[:] = np.frombuffer(model.data(meta.name), dtype=np.uint8)
    staged.filled(two)
    staged.filled(one)
    staged.seal()
    store.verify(1)


def test_sources_in_threads_of_their_own_make_one_version(tmp_path: Path) -> None:
    metas = (*PLAIN, *(TensorMeta(f"model.layers.{n}.weight", "float32", (64, 64)) for n in range(64)))
    model = Model(metas=metas)
    with open_store(tmp_path, model.base(tmp_path / "base")) as store:
        staged = store.begin(sync_begin(1))

        def source(number: int) -> None:
            for index, meta in enumerate(metas[number::4]):
                fill(staged, bucket(index, (meta,), source=f"pp_{number}"), [model.data(meta.name, 3)])

        threads = [threading.Thread(target=source, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        staged.seal()
        store.verify(1)
        assert {name: data for name, (_, _, data) in contents(store.path(1)).items()} == {
            meta.name: model.data(meta.name, 3) for meta in metas
        }


# --- tied and shared tensors ------------------------------------------------------------


def tied_store(tmp_path: Path) -> tuple[VersionStore, Model]:
    model = Model(metas=(EMBED, NORM, PROJ), tied=True)
    return open_store(tmp_path, model.base(tmp_path / "base")), model


def test_a_tied_head_that_is_not_sent_is_recorded_as_absent(tmp_path: Path) -> None:
    store, model = tied_store(tmp_path)
    with store:
        manifest = seal(store, model, 1)
        assert manifest.absent == (HEAD.name,)
        assert HEAD.name not in contents(store.path(1))


@pytest.mark.parametrize("together", [True, False])
def test_a_tied_head_that_is_sent_equal_is_kept(tmp_path: Path, together: bool) -> None:
    store, model = tied_store(tmp_path)
    with store:
        staged = store.begin(sync_begin(1))
        send(staged, model, seed=1, without=(EMBED.name,))
        embedding = model.data(EMBED.name, 1)
        if together:
            fill(staged, bucket(7, (EMBED, HEAD)), [embedding, embedding])
        else:
            fill(staged, bucket(7, (HEAD,)), [embedding])
            fill(staged, bucket(8, (EMBED,)), [embedding])
        assert staged.seal().absent == ()
        assert contents(store.path(1))[HEAD.name][2] == embedding


def test_a_tied_head_that_is_sent_different_is_refused_at_seal(tmp_path: Path) -> None:
    store, model = tied_store(tmp_path)
    with store:
        staged = store.begin(sync_begin(1))
        send(staged, model, seed=1)
        fill(staged, bucket(9, (HEAD,)), [model.data(EMBED.name, 2)])
        with pytest.raises(VersionRefused, match="ties"):
            staged.seal()
        assert_discarded(store, 1, DiscardReason.TIED_MISMATCH)


def test_a_tied_head_in_the_base_is_never_brought_back(tmp_path: Path) -> None:
    model = Model(metas=PLAIN, tied=True, override={HEAD.name: Model().data(EMBED.name)})
    with open_store(tmp_path, model.base(tmp_path / "base")) as store:
        staged = store.begin(sync_begin(1))
        send(staged, model, seed=1, without=(HEAD.name,))
        assert staged.seal().absent == (HEAD.name,)
        assert HEAD.name not in contents(store.path(1))


def test_a_tensor_that_two_sources_own_is_one_tensor_if_its_bytes_are_equal(
    store: VersionStore, model: Model
) -> None:
    staged = store.begin(sync_begin(1))
    send(staged, model, seed=1)
    fill(staged, bucket(0, (EMBED,), source="pp_1"), [model.data(EMBED.name, 1)])
    assert staged.seal().num_tensors == len(PLAIN)
    assert contents(store.path(1))[EMBED.name][2] == model.data(EMBED.name, 1)


@pytest.mark.parametrize("first", [0, 1])
def test_a_tensor_that_two_sources_own_is_refused_if_its_bytes_differ(
    store: VersionStore, model: Model, first: int
) -> None:
    staged = store.begin(sync_begin(1))
    headers = [bucket(0, (EMBED, NORM), source="pp_0"), bucket(0, (PROJ, EMBED), source="pp_1")]
    for seed, header in enumerate(headers):
        for view, meta in zip(staged.allocate(header), header.tensors, strict=True):
            view[:] = np.frombuffer(model.data(meta.name, seed), dtype=np.uint8)
    staged.filled(headers[first])
    with pytest.raises(VersionRefused, match="different bytes"):
        staged.filled(headers[1 - first])
    assert_discarded(store, 1, DiscardReason.DUPLICATE_TENSOR)


def test_a_tensor_twice_in_one_bucket_counts_once(store: VersionStore, model: Model) -> None:
    staged = store.begin(sync_begin(1))
    send(staged, model, seed=1, without=(EMBED.name,))
    fill(staged, bucket(9, (EMBED, EMBED)), [model.data(EMBED.name, 1)] * 2)
    assert staged.seal().num_tensors == len(PLAIN)


# --- tensors from the base --------------------------------------------------------------


def test_a_tensor_that_no_sync_carries_is_the_base_s_and_marked(tmp_path: Path) -> None:
    model = Model(metas=(*PLAIN, MTP))
    with open_store(tmp_path, model.base(tmp_path / "base", allowed_absent=("model.mtp.*",))) as store:
        for version in (1, 2):
            staged = store.begin(sync_begin(version))
            send(staged, model, seed=version, without=(MTP.name,))
            manifest = staged.seal()
            store.verify(version)
            assert contents(store.path(version))[MTP.name][2] == model.data(MTP.name)
            assert manifest.absent == (MTP.name,)
            assert {t.name for t in manifest.tensors if t.origin == "base"} == {MTP.name}
        files = [(store.path(version) / "base-tensors.safetensors").stat() for version in (1, 2)]
        assert files[0].st_ino == files[1].st_ino
        originals = {file.stat().st_ino for file in (tmp_path / "base").iterdir()}
        assert files[0].st_ino not in originals


def test_a_tensor_that_may_be_absent_is_the_sync_s_when_it_is_sent(tmp_path: Path) -> None:
    model = Model(metas=(*PLAIN, MTP))
    with open_store(tmp_path, model.base(tmp_path / "base", allowed_absent=("model.mtp.*",))) as store:
        manifest = seal(store, model, 1, seed=5)
        assert contents(store.path(1))[MTP.name][2] == model.data(MTP.name, 5)
        assert manifest.absent == ()


# --- links to the version before --------------------------------------------------------


def test_shards_and_side_files_that_did_not_change_are_links(store: VersionStore, model: Model) -> None:
    seal(store, model, 1, seed=1)
    staged = store.begin(sync_begin(2))
    fill(staged, bucket(0, (PROJ, EMBED)), [model.data(PROJ.name, 1), model.data(EMBED.name, 1)])
    fill(staged, bucket(1, (NORM, HEAD)), [model.data(NORM.name, 2), model.data(HEAD.name, 1)])
    staged.seal()
    inodes = [{file.name: file.stat().st_ino for file in store.path(version).iterdir()} for version in (1, 2)]
    same = {name for name in inodes[0] if inodes[0][name] == inodes[1][name]}
    assert same == {"config.json", "tokenizer.json", "shard-00001.safetensors"}
    store.verify(1)
    store.verify(2)


def test_a_version_outlives_the_one_it_links_to(store: VersionStore, model: Model) -> None:
    for version in (1, 2, 3, 4):
        seal(store, model, version, seed=1)
        store.unpin(version, "fresh")
    store.collect()
    assert [record.policy_version for record in store.sealed()] == [3, 4]
    store.verify(3)
    store.verify(4)


def test_a_store_that_was_opened_again_links_to_what_is_there(tmp_path: Path, model: Model) -> None:
    base = model.base(tmp_path / "base")
    for version in (1, 2):
        with open_store(tmp_path, base) as store:
            seal(store, model, version, seed=1)
    with open_store(tmp_path, base) as store:
        assert store.path(1).joinpath("config.json").samefile(store.path(2) / "config.json")


def test_a_version_does_not_need_the_base_directory_once_the_first_one_is_sealed(
    tmp_path: Path, store: VersionStore, model: Model
) -> None:
    seal(store, model, 1)
    (tmp_path / "base").rename(tmp_path / "moved")
    seal(store, model, 2)
    store.verify(2)


def test_a_base_whose_side_files_change_is_noticed(
    tmp_path: Path, store: VersionStore, base: BaseCheckpoint, model: Model
) -> None:
    assert "config.json" in base.side_digests
    (tmp_path / "base" / "config.json").write_text('{"tie_word_embeddings": false, "x": 1}')
    staged = store.begin(sync_begin(1))
    send(staged, model, seed=1)
    with pytest.raises(StoreError, match="has changed"):
        staged.seal()
    assert_discarded(store, 1, DiscardReason.STORE_FAILED)


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
