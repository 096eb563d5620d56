"""A store that is open for writing, and what tests read back of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import safetensors

from live_eval.errors import NoSuchVersion
from live_eval.store import (
    BaseCheckpoint,
    VersionState,
    VersionStore,
)
from live_eval.store.directories import StoreDirectories

if TYPE_CHECKING:
    from live_eval.reasons import DiscardReason


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
