"""Files of versions that are gone take the next one's bytes, unless anybody could see that."""

from __future__ import annotations

import mmap
import os
import random
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.checkpoints import EMBED, NORM, Model, bucket, fill, seal, sync_begin

from live_eval.errors import StoreFull
from live_eval.reasons import DiscardReason
from live_eval.store import FRESH_OWNER, BaseCheckpoint, VersionState, VersionStore, spares
from live_eval.store.catalogue import Catalogue
from live_eval.store.directories import tree_bytes
from live_eval.store.spares import Spares
from live_eval.store.writer import StagedState
from protocol.messages import TensorMeta

BULK = TensorMeta("model.bulk.weight", "uint8", (1 << 20,))
BIG = Model(metas=(EMBED, NORM, BULK), tied=True)


@pytest.fixture
def big_store(tmp_path: Path) -> Iterator[VersionStore]:
    """Keeps one version beside the one that is being received."""
    base = BIG.base(tmp_path / "big")
    with VersionStore.open(tmp_path / "s", base=base, max_bytes=1 << 30, keep_newest=1, writer=True) as store:
        yield store


def shards_of(store: VersionStore, version: int) -> list[Path]:
    return sorted(store.path(version).glob("shard-*.safetensors"))


def shard_of(store: VersionStore, version: int) -> Path:
    return shards_of(store, version)[0]


def inodes(paths: Iterable[Path]) -> set[int]:
    return {path.stat().st_ino for path in paths}


def spares_of(store: VersionStore) -> list[Path]:
    return list((store.root / "spare").glob("*"))


def seal_and_collect(store: VersionStore, version: int) -> None:
    seal(store, BIG, version)
    store.unpin(version, FRESH_OWNER)
    store.collect()


# --- through the store ------------------------------------------------------------------


def test_a_version_takes_the_files_of_the_one_that_went(big_store: VersionStore) -> None:
    seal_and_collect(big_store, 1)
    gone = inodes(shards_of(big_store, 1))
    seal_and_collect(big_store, 2)
    assert inodes(spares_of(big_store)) == gone
    seal_and_collect(big_store, 3)
    assert inodes(shards_of(big_store, 3)) == gone
    assert {path.stat().st_mode & 0o777 for path in shards_of(big_store, 3)} == {0o444}
    big_store.verify(3)


@pytest.mark.parametrize("way", ["mapped", "open", "linked"])
def test_who_still_sees_a_file_of_a_version_that_went_sees_its_bytes(
    big_store: VersionStore, tmp_path: Path, way: str
) -> None:
    seal_and_collect(big_store, 1)
    path = shard_of(big_store, 1)
    content, link = path.read_bytes(), tmp_path / "link"
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        if way != "open":
            file.close()
        if way != "mapped":
            mapped.close()
        if way == "linked":
            os.link(path, link)
        for version in (2, 3, 4):
            seal_and_collect(big_store, version)
        seen = {"mapped": lambda: mapped[:], "open": file.read, "linked": link.read_bytes}[way]()
        assert seen == content
    if way == "linked":
        assert link.stat().st_mode & 0o777 == 0o444


def test_without_the_question_who_has_it_open_a_reader_would_see_other_bytes(
    big_store: VersionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spares, "_has_no_other_user", lambda descriptor: True)
    seal_and_collect(big_store, 1)
    content = shard_of(big_store, 1).read_bytes()
    with shard_of(big_store, 1).open("rb") as file:
        for version in (2, 3):
            seal_and_collect(big_store, version)
        assert file.read() != content


def test_a_shard_that_two_versions_share_is_not_written_when_one_of_them_goes(
    big_store: VersionStore,
) -> None:
    seal(big_store, BIG, 1, seed=7)
    seal(big_store, BIG, 2, seed=7)
    assert shard_of(big_store, 1).samefile(shard_of(big_store, 2))
    big_store.unpin(1, FRESH_OWNER)
    big_store.collect()
    assert spares_of(big_store) == []
    seal(big_store, BIG, 3)
    big_store.verify(2)
    assert shard_of(big_store, 2).stat().st_mode & 0o777 == 0o444


def test_the_files_of_a_sync_that_failed_are_no_spares(big_store: VersionStore) -> None:
    staged = big_store.begin(sync_begin(1))
    fill(staged, bucket(0, BIG.metas), [BIG.data(meta.name, 1) for meta in BIG.metas])
    seal(big_store, BIG, 2)
    assert (staged.state, spares_of(big_store)) == (StagedState.DISCARDED, [])


def test_a_writer_that_starts_finds_none(big_store: VersionStore) -> None:
    for version in (1, 2):
        seal_and_collect(big_store, version)
    assert spares_of(big_store)
    big_store.close()
    with VersionStore.open(
        big_store.root, base=BaseCheckpoint.read(big_store.root.parent / "big"), max_bytes=1 << 30,
        keep_newest=1, writer=True,
    ) as again:  # fmt: skip
        assert not spares_of(again)
        seal_and_collect(again, 3)
        again.verify(3)


def test_spares_go_down_to_what_the_next_version_may_take(tmp_path: Path) -> None:
    odd = TensorMeta("model.odd.weight", "uint8", (3 << 20,))
    model = Model(metas=(*BIG.metas, odd), tied=True)
    base = model.base(tmp_path / "base")
    budget = 14 << 20
    with VersionStore.open(tmp_path / "s", base=base, max_bytes=budget, keep_newest=1, writer=True) as store:
        for version in (1, 2):
            seal(store, model, version)
            store.unpin(version, FRESH_OWNER)
        store.collect()
        assert tree_bytes(store.root / "spare") > 4 << 20
        (store.root / "spare" / f"{9 << 20}-{'0' * 32}").write_bytes(b"x" * (9 << 20))
        staged = store.begin(sync_begin(3))
        assert store.used_bytes() <= budget
        assert sum(map(tree_bytes, _directories(store))) <= budget
        fill(staged, bucket(0, model.metas), [model.data(meta.name, 3) for meta in model.metas])
        staged.seal()
        assert spares_of(store) == []
        assert store.used_bytes() <= budget


@pytest.mark.parametrize("method", ["allocate", "mark_discarded", "sync_refused"])
def test_on_a_full_disk_spares_are_room_for_the_record(
    big_store: VersionStore, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    for version in (1, 2):
        seal_and_collect(big_store, version)
    record = getattr(Catalogue, method)
    num_calls = 0

    def record_with_room(self: Catalogue, *args: Any, **kwargs: Any) -> Any:
        nonlocal num_calls
        num_calls += 1
        if spares_of(big_store):
            raise StoreFull("database or disk is full")
        return record(self, *args, **kwargs)

    monkeypatch.setattr(Catalogue, method, record_with_room)
    if method == "sync_refused":
        big_store.sync_refused(sync_begin(7), DiscardReason.WRONG_SHAPE)
        assert [each.reason for each in big_store.discarded()] == ["wrong_shape"]
    elif method == "mark_discarded":
        big_store.begin(sync_begin(3)).discard(DiscardReason.PUBLISHER_LOST)
        assert big_store.get(3).state is VersionState.DISCARDED
    else:
        seal(big_store, BIG, 3)
        big_store.verify(3)
    assert num_calls
    assert spares_of(big_store) == []


@pytest.mark.parametrize("seed", range(4))
def test_with_versions_of_many_sizes_the_budget_holds_and_each_is_whole(tmp_path: Path, seed: int) -> None:
    numbers = random.Random(seed)
    base = BIG.base(tmp_path / "big")
    budget = 9 << 20
    with VersionStore.open(
        tmp_path / "s", base=base, max_bytes=budget, keep_newest=numbers.choice((1, 2)), writer=True
    ) as store:
        for version in range(1, 25):
            metas = list(BIG.metas)
            numbers.shuffle(metas)
            at = numbers.randrange(1, len(metas))
            staged = store.begin(sync_begin(version))
            for index, part in enumerate((metas[:at], metas[at:])):
                fill(staged, bucket(index, tuple(part)), [BIG.data(meta.name, version) for meta in part])
                on_disk = sum(map(tree_bytes, _directories(store)))
                assert on_disk <= budget
            staged.seal()
            store.unpin(version, FRESH_OWNER)
            if numbers.random() < 0.7:
                store.collect()
            for record in store.sealed():
                store.verify(record.policy_version)


def _directories(store: VersionStore) -> list[Path]:
    tops = [*(store.root / "versions").iterdir(), *(store.root / "staging").iterdir()]
    return [*tops, store.root / "spare"]


# --- alone ------------------------------------------------------------------------------


def empty_stock(tmp_path: Path) -> Spares:
    (tmp_path / "spare").mkdir()
    return Spares(tmp_path / "spare")


@pytest.fixture
def stock(tmp_path: Path) -> Spares:
    """Holds files of 100, 200 and 300 bytes."""
    gone = tmp_path / "gone"
    gone.mkdir()
    for size in (100, 200, 300):
        (gone / f"{size}.safetensors").write_bytes(b"x" * size)
    made = empty_stock(tmp_path)
    made.refill(gone)
    assert list(gone.iterdir()) == []
    return made


def test_only_a_file_of_just_that_size_is_taken(stock: Spares, tmp_path: Path) -> None:
    os.close(stock.open(tmp_path / "a", 200))
    assert (tmp_path / "a").read_bytes() == b"x" * 200
    assert stock.num_bytes() == 400


def test_what_is_made_anew_has_spares_go_first(stock: Spares, tmp_path: Path) -> None:
    os.close(stock.open(tmp_path / "a", 150))
    assert (tmp_path / "a").read_bytes() == b""
    assert stock.num_bytes() == 300
    os.close(stock.open(tmp_path / "b", 10_000))
    assert stock.num_bytes() == 0
    os.close(stock.open(tmp_path / "c", 200))
    assert (tmp_path / "c").read_bytes() == b""


@pytest.mark.parametrize("way", ["linked", "open"])
def test_who_came_by_the_old_name_while_it_was_kept_keeps_the_bytes(
    stock: Spares, tmp_path: Path, way: str
) -> None:
    (spare,) = (path for path in (tmp_path / "spare").iterdir() if path.stat().st_size == 200)
    seen = tmp_path / "seen"
    with spare.open("rb") as late:
        os.link(spare, seen)
        if way == "linked":
            late.close()
        else:
            seen.unlink()
        descriptor = stock.open(tmp_path / "a", 200)
        os.write(descriptor, b"other bytes")
        os.close(descriptor)
        assert (seen.read_bytes() if way == "linked" else late.read()) == b"x" * 200


def test_who_waits_to_open_it_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, path = spares.fcntl.fcntl, tmp_path / "a"
    path.write_bytes(b"x")

    def somebody_comes(descriptor: int, command: int, argument: int = 0) -> int:
        answer = ask(descriptor, command, argument)
        if (command, argument) == (spares.fcntl.F_SETLEASE, spares.fcntl.F_WRLCK):
            with pytest.raises(BlockingIOError):
                os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        return answer

    assert spares._is_free(path)
    monkeypatch.setattr(spares.fcntl, "fcntl", somebody_comes)
    assert not spares._is_free(path)


def test_what_is_no_spare_is_left_alone_and_never_in_the_way(stock: Spares, tmp_path: Path) -> None:
    for name in (".directory", "200-x", "notes.txt"):
        (tmp_path / "spare" / name).write_bytes(b"z" * 7)
    assert stock.num_bytes() == 600
    os.close(stock.open(tmp_path / "a", 200))
    stock.trim(0)
    assert not list((tmp_path / "spare").glob("[13]00-*"))


def test_without_its_directory_there_are_none(tmp_path: Path) -> None:
    stock = Spares(tmp_path / "spare")
    stock.refill(tmp_path / "nowhere")
    os.close(stock.open(tmp_path / "a", 10))
    assert stock.num_bytes() == 0


def test_a_refill_takes_the_place_of_what_was_there(stock: Spares, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    (more / "new.safetensors").write_bytes(b"y" * 50)
    (more / "manifest.json").write_bytes(b"{}")
    (more / "pipe.safetensors").symlink_to(more / "manifest.json")
    stock.refill(more)
    assert stock.num_bytes() == 50
    assert sorted(path.name for path in more.iterdir()) == ["manifest.json", "pipe.safetensors"]
    stock.refill(more)
    assert stock.num_bytes() == 50


def test_no_two_threads_get_one_file(tmp_path: Path) -> None:
    stock = empty_stock(tmp_path)
    taken: list[int] = []
    for turn in range(20):
        gone = tmp_path / f"gone-{turn}"
        gone.mkdir()
        for number in range(4):
            (gone / f"{number}.safetensors").write_bytes(b"x" * 64)
        stock.refill(gone)
        start = threading.Barrier(8)

        def take(number: int, turn: int = turn, start: threading.Barrier = start) -> None:
            start.wait()
            descriptor = stock.open(tmp_path / f"{turn}-{number}", 64)
            taken.append(os.fstat(descriptor).st_ino)
            os.close(descriptor)

        threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(taken) == len(set(taken)) == 160


def test_a_file_system_that_grants_no_lease_keeps_no_spares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, command: int, argument: int) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(spares.fcntl, "fcntl", refuse)
    gone = tmp_path / "gone"
    gone.mkdir()
    (gone / "a.safetensors").write_bytes(b"x")
    stock = empty_stock(tmp_path)
    stock.refill(gone)
    assert stock.num_bytes() == 0
    assert [path.name for path in gone.iterdir()] == ["a.safetensors"]
