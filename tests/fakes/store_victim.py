"""A receiver's process that does one thing to a store and may die while it does; run with -m.

    python -m fakes.store_victim die POINT ROOT BASE      seal version 1, then be killed within sync 2
    python -m fakes.store_victim loop ROOT BASE           seal versions until somebody kills it
    python -m fakes.store_victim count ROOT BASE NUM      seal NUM versions, as fast as it can
    python -m fakes.store_victim file_limit ROOT BASE     meet a limit on the size of a file
    python -m fakes.store_victim full_disk ROOT BASE      fill the disk that ROOT is on, and go on

BASE holds `VICTIM_MODEL`.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes.checkpoints import Model, bucket, fill, send, sync_begin

from live_eval.errors import StoreFull
from live_eval.reasons import DiscardReason
from live_eval.store import (
    FRESH_OWNER,
    BaseCheckpoint,
    Catalogue,
    PinKind,
    VersionState,
    VersionStore,
    assembly,
    directories,
    room,
    shard,
)
from live_eval.store.directories import StoreDirectories
from live_eval.store.room import Room
from protocol.messages import TensorMeta

MIB = 1 << 20
FIRST = TensorMeta("model.embed_tokens.weight", "uint8", (3 * MIB,))
SECOND = TensorMeta("model.layers.0.weight", "uint8", (3 * MIB,))
VICTIM_MODEL = Model(metas=(FIRST, SECOND, TensorMeta("model.norm.weight", "float32", (8,))), tied=True)
VICTIM_BUDGET = 30 * MIB

POINTS = (
    "numbered",
    "staging_made",
    "bucket_allocated",
    "bucket_filled",
    "all_filled",
    "before_manifest",
    "before_rename",
    "after_rename",
    "after_record",
    "before_discard_record",
    "before_removal",
    "within_removal",
)
SEALED_POINTS = ("after_rename", "after_record")
"""At these version 2 is whole, so it must be there after a restart."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, when: Callable[..., bool] = lambda *_: True) -> None:
    """Die when this function is called."""
    real = getattr(owner, name)

    def dying(*args: Any, **named: Any) -> Any:
        if when(*args):
            die()
        return real(*args, **named)

    setattr(owner, name, dying)


def after(owner: Any, name: str) -> None:
    """Die when this function has returned."""
    real = getattr(owner, name)

    def dying(*args: Any, **named: Any) -> Any:
        real(*args, **named)
        die()

    setattr(owner, name, dying)


def arm(point: str) -> None:
    """See to it that this process dies at the point, unless `sync_two` does so itself."""
    match point:
        case "numbered":
            before(Room, "reserve")
        case "before_manifest":
            before(assembly, "write_file", lambda path, data: path.name == "manifest.json")
        case "before_rename":
            before(directories.os, "rename")
        case "after_rename":
            after(directories.os, "rename")
        case "after_record":
            after(Catalogue, "mark_sealed")
        case "before_discard_record":
            before(Catalogue, "mark_discarded")
        case "before_removal":
            before(StoreDirectories, "remove_version")
        case "within_removal":
            before(directories, "remove_flat")


def open_store(root: Path, base: Path, *, keep_newest: int = 1) -> VersionStore:
    return VersionStore.open(
        root, base=BaseCheckpoint.read(base), max_bytes=VICTIM_BUDGET, keep_newest=keep_newest, writer=True
    )


def sync_two(store: VersionStore, point: str) -> None:
    """The sync within which this process dies."""
    staged = store.begin(sync_begin(2))
    if point == "staging_made":
        die()
    header = bucket(0, (FIRST,))
    if point == "bucket_allocated":
        staged.allocate(header)[0][:MIB] = 1
        die()
    fill(staged, header, [VICTIM_MODEL.data(FIRST.name, 2)])
    if point == "bucket_filled":
        die()
    if point == "before_discard_record":
        staged.discard(DiscardReason.PUBLISHER_ABORTED)
    rest = VICTIM_MODEL.metas[1:]
    fill(staged, bucket(1, rest), [VICTIM_MODEL.data(meta.name, 2) for meta in rest])
    if point == "all_filled":
        die()
    staged.seal()


def run_die(point: str, root: Path, base: Path) -> None:
    with open_store(root, base, keep_newest=2) as store:
        staged = store.begin(sync_begin(1))
        send(staged, VICTIM_MODEL, seed=1)
        staged.seal()
        removal = point in ("before_removal", "within_removal")
        if removal:  # let version 1 be in the way of version 2
            store.unpin(1, FRESH_OWNER)
            room.free_bytes = lambda path: 8 * MIB
        arm(point)
        sync_two(store, point)


def run_loop(root: Path, base: Path, num_versions: int | None) -> None:
    with open_store(root, base) as store:
        last = store.records()[-1].weight_version if store.records() else 0
        version = last
        while num_versions is None or version < last + num_versions:
            version += 1
            with contextlib.suppress(StoreFull):
                staged = store.begin(sync_begin(version))
                send(staged, VICTIM_MODEL, seed=version % 7, bucket_size=1)
                staged.seal()
                print(version, flush=True)


def run_file_limit(root: Path, base: Path) -> None:
    """A file may have 4 MiB: too few for one bucket of 6, enough for two of 3."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * MIB, 4 * MIB))
    with open_store(root, base) as store:
        staged = store.begin(sync_begin(1))
        expect_full(lambda: staged.allocate(bucket(0, (FIRST, SECOND))))
        assert_clean(store, 1)
        seal_and_check(store, 2)


def run_full_disk(root: Path, base: Path) -> None:
    """The disk of `root` has about 24 MiB; somebody else takes what is left of it."""
    filler = root.parent / "filler"
    with open_store(root, base, keep_newest=3) as store:
        seal_and_check(store, 1)
        store.pin(1, "job", PinKind.RUNNING)

        fill_disk(filler, leave=5 * MIB)
        expect_full(lambda: store.begin(sync_begin(2)))  # seen before a byte is written
        assert_clean(store, 2)
        room.free_bytes = lambda path: 1 << 40  # as if others were quicker than the look
        staged = store.begin(sync_begin(3))
        expect_full(lambda: staged.allocate(bucket(0, (FIRST, SECOND))))
        assert_clean(store, 3)
        shard._MADV_POPULATE_WRITE = -1  # an older kernel, where only claimed blocks prevent a SIGBUS
        staged = store.begin(sync_begin(4))
        fill(staged, bucket(0, (FIRST,)), [VICTIM_MODEL.data(FIRST.name, 4)])
        expect_full(lambda: staged.allocate(bucket(1, (SECOND,))))
        assert_clean(store, 4)
        store.verify(1)
        filler.unlink()
        seal_and_check(store, 5)

        fill_disk(filler, leave=0)
        for version in range(6, 40):  # there is not even room to write down that there is none
            expect_full(lambda version=version: send_all(store, version))
        filler.unlink()
        seal_and_check(store, 40)
        store.verify(1)
        # Each has its record all the same, once there was room for it.
        assert sorted(discard.weight_version for discard in store.discarded()) == [2, 3, 4, *range(6, 40)]
        assert {discard.reason for discard in store.discarded()} == {DiscardReason.STORE_FULL}


def send_all(store: VersionStore, version: int) -> None:
    send(store.begin(sync_begin(version)), VICTIM_MODEL, seed=version)


def fill_disk(filler: Path, *, leave: int) -> None:
    disk = os.statvfs(filler.parent)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - leave)


def expect_full(action: Callable[[], object]) -> None:
    try:
        action()
    except StoreFull:
        return
    raise AssertionError("the store took what there is no room for")


def assert_clean(store: VersionStore, version: int) -> None:
    record = store.get(version)
    assert (record.state, record.reason) == (VersionState.DISCARDED, DiscardReason.STORE_FULL), record
    assert list((store.root / "staging").iterdir()) == []


def seal_and_check(store: VersionStore, version: int) -> None:
    staged = store.begin(sync_begin(version))
    send(staged, VICTIM_MODEL, seed=version, bucket_size=1)
    staged.seal()
    store.verify(version)


def main() -> None:
    match sys.argv[1:]:
        case ["die", point, root, base]:
            run_die(point, Path(root), Path(base))
        case ["loop", root, base]:
            run_loop(Path(root), Path(base), None)
        case ["count", root, base, num]:
            run_loop(Path(root), Path(base), int(num))
        case ["file_limit", root, base]:
            run_file_limit(Path(root), Path(base))
        case ["full_disk", root, base]:
            run_full_disk(Path(root), Path(base))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
