"""A receiver that is killed at any point leaves a store that the next one opens and goes on with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes.checkpoints import seal
from fakes.store_victim import POINTS, SEALED_POINTS, VICTIM_BUDGET, VICTIM_MODEL

from live_eval.errors import NoSuchVersion
from live_eval.store import BaseCheckpoint, VersionState, VersionStore

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return VICTIM_MODEL.write(tmp_path / "base")


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "fakes.store_victim", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests'}"},
        stdout=subprocess.PIPE,
        text=True,
    )


def reopen(root: Path, base: Path, *, keep_newest: int = 2) -> VersionStore:
    return VersionStore.open(
        root, base=BaseCheckpoint.read(base), max_bytes=VICTIM_BUDGET, keep_newest=keep_newest, writer=True
    )


def assert_sound(store: VersionStore) -> None:
    """Every file belongs to a sealed version, and every sealed version is right."""
    assert list((store.root / "staging").iterdir()) == []
    sealed = [record.policy_version for record in store.sealed()]
    assert sorted(path.name for path in (store.root / "versions").iterdir()) == [f"v{n:06d}" for n in sealed]
    for version in sealed:
        store.verify(version)
    assert {record.state for record in store.records()} <= set(VersionState) - {VersionState.RECEIVING}
    assert store.used_bytes() <= VICTIM_BUDGET


@pytest.mark.parametrize("point", POINTS)
def test_a_receiver_that_is_killed_at_a_named_point(tmp_path: Path, base: Path, point: str) -> None:
    root = tmp_path / "store"
    with start("die", point, root, base) as victim:
        assert victim.wait(timeout=60) == -signal.SIGKILL
    with reopen(root, base) as store:
        assert_sound(store)
        if point in SEALED_POINTS:
            assert store.get(2).state is VersionState.SEALED
            assert [pin.owner for pin in store.pins(2)] == ["fresh"]
        else:
            assert (store.get(2).state, store.get(2).reason) == (VersionState.DISCARDED, "receiver_restarted")
            assert [discard.policy_version for discard in store.discarded()] == [2]
        if "removal" in point:
            with pytest.raises(NoSuchVersion):
                store.path(1)
        else:
            store.verify(1)
        assert seal(store, VICTIM_MODEL, 1, incarnation="life-2").policy_version == 3
        assert_sound(store)


def test_a_version_that_was_renamed_but_damaged_is_discarded(tmp_path: Path, base: Path) -> None:
    root = tmp_path / "store"
    with start("die", "after_rename", root, base) as victim:
        assert victim.wait(timeout=60) == -signal.SIGKILL
    shard = root / "versions" / "v000002" / "shard-00001.safetensors"
    shard.chmod(0o644)
    with shard.open("r+b") as file:  # what a power cut may do to data that was not yet on disk
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    with reopen(root, base) as store:
        assert_sound(store)
        assert (store.get(2).reason, "digest" in store.get(2).detail) == ("receiver_restarted", True)


def test_a_receiver_that_is_killed_at_any_moment_again_and_again(tmp_path: Path, base: Path) -> None:
    root = tmp_path / "store"
    given_out: list[int] = []
    for round_number in range(6):
        with start("loop", root, base) as victim:
            assert victim.stdout is not None
            victim.stdout.readline()  # it has sealed one; the pause below falls anywhere in a later sync
            time.sleep(0.013 * round_number)
            victim.kill()
            victim.wait(timeout=60)
        with reopen(root, base) as store:
            assert_sound(store)
            numbers = [record.policy_version for record in store.records()]
            assert numbers[: len(given_out)] == given_out
            assert len(numbers) > len(given_out)
            assert numbers == sorted(set(numbers))
            given_out = numbers
