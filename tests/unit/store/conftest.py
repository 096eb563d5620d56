"""A store of a small model in a temporary directory, opened for writing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.checkpoints import Model

from live_eval.store import BaseCheckpoint, VersionStore


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def base(tmp_path: Path, model: Model) -> BaseCheckpoint:
    return model.base(tmp_path / "base")


@pytest.fixture
def store(tmp_path: Path, base: BaseCheckpoint) -> Iterator[VersionStore]:
    with VersionStore.open(
        tmp_path / "store", base=base, max_bytes=1 << 30, keep_newest=2, writer=True
    ) as opened:
        yield opened
