"""The bytes of a sealed version, as an engine would read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from fakes.sync import MODEL

from live_eval.store import BaseCheckpoint, VersionRecord, VersionStore


def stored_content(store_dir: Path, policy_version: int | None) -> dict[str, bytes]:
    """Tensor name -> bytes, for the tensors of fakes.sync; the version is verified first."""
    assert policy_version is not None
    with VersionStore.open(store_dir, max_bytes=1 << 30, keep_newest=9) as store:
        store.verify(policy_version)
        version = BaseCheckpoint.read(store.path(policy_version))
    found = {meta.name: np.empty(meta.num_bytes, dtype=np.uint8) for meta in MODEL}
    for name, place in found.items():
        version.copy_tensor(name, place)
    return {name: place.tobytes() for name, place in found.items()}


def stored_record(store_dir: Path, policy_version: int | None) -> VersionRecord:
    """What the catalogue has of a version."""
    assert policy_version is not None
    with VersionStore.open(store_dir, max_bytes=1 << 30, keep_newest=9) as store:
        return store.get(policy_version)
