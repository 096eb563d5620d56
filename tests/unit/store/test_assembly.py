"""What a version holds besides what arrived: shared tensors, those of the base, links to the last version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fakes.checkpoints import EMBED, HEAD, NORM, PLAIN, PROJ, Model, bucket, fill, seal, send, sync_begin
from fakes.opened_store import assert_discarded, contents, open_store

from live_eval.errors import StoreError, VersionRefused
from live_eval.reasons import DiscardReason
from protocol.messages import TensorMeta

if TYPE_CHECKING:
    from live_eval.store import (
        BaseCheckpoint,
        VersionStore,
    )

MTP = TensorMeta("model.mtp.0.proj.weight", "bfloat16", (4, 4))


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
