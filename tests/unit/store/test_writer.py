"""A version is what arrived, bit for bit, in however many buckets and from however many sources."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
from fakes.checkpoints import EMBED, HEAD, NORM, ODD, PLAIN, PROJ, Model, bucket, fill, seal, send, sync_begin
from fakes.opened_store import contents, open_store

from live_eval.digests import tensor_digest
from live_eval.errors import StoreError
from live_eval.store import (
    StagedState,
    VersionStore,
)
from live_eval.store.written_shard import FileRange
from protocol.dtypes import DTYPES
from protocol.messages import TensorMeta


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
