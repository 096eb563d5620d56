"""A receiver and a service on one store at once: what is pinned stays, what is read is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from fakes.store_victim import MIB, VICTIM_BUDGET, VICTIM_MODEL

from live_eval.errors import NoSuchVersion
from live_eval.store import FRESH_OWNER, PinKind, VersionState, VersionStore

REPOSITORY = Path(__file__).parents[2]
NUM_VERSIONS = 20


def on_disk(root: Path) -> int:
    """Bytes under versions/ and staging/, each inode once, since renames go on meanwhile."""
    inodes: dict[int, int] = {}
    for top in ("versions", "staging"):
        for directory, _, names in os.walk(root / top):
            for name in names:
                try:
                    stat = os.lstat(os.path.join(directory, name))
                except FileNotFoundError:
                    continue
                inodes[stat.st_ino] = max(stat.st_size, stat.st_blocks * 512)
    return sum(inodes.values())


def evaluate_newest(reader: VersionStore) -> int | None:
    """What a service does with a version; None if there was none, or it went before it was pinned."""
    stable = reader.stable()
    if stable is None:
        return None
    version = stable.policy_version
    try:
        reader.pin(version, "job", PinKind.WAITING)
    except NoSuchVersion:
        return None
    reader.unpin(version, FRESH_OWNER)
    if not reader.upgrade(version, "job"):
        return None
    for _ in range(2):  # pinned as running: from here on nothing may be missing
        assert reader.verify(version).policy_version == version
    assert reader.unpin(version, "job")
    return version


def test_two_processes_share_a_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    base = VICTIM_MODEL.write(tmp_path / "base")
    evaluated: set[int] = set()
    most = 0
    with (
        VersionStore.open(root, max_bytes=VICTIM_BUDGET, keep_newest=1) as reader,
        subprocess.Popen(
            [sys.executable, "-m", "fakes.store_victim", "count", str(root), str(base), str(NUM_VERSIONS)],
            env=os.environ | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'tests'}"},
            stdout=subprocess.DEVNULL,
        ) as writer,
    ):
        while writer.poll() is None:
            version = evaluate_newest(reader)
            if version is not None:
                evaluated.add(version)
            reader.collect()
            most = max(most, on_disk(root))
        assert writer.returncode == 0
        evaluate_newest(reader)

        assert 6 * MIB < most <= VICTIM_BUDGET
        assert len(evaluated) > 1
        records = reader.records()
        assert [record.policy_version for record in records] == list(range(1, NUM_VERSIONS + 1))
        assert {record.state for record in records} <= {
            VersionState.SEALED,
            VersionState.COLLECTED,
            VersionState.DISCARDED,
        }
        assert all(record.reason for record in records if record.state is not VersionState.SEALED)
        for record in reader.sealed():
            reader.verify(record.policy_version)
