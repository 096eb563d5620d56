"""A receiver over a real store in a temporary directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.receiving import Desk
from fakes.sync import write_base

if TYPE_CHECKING:
    from live_eval.store import BaseCheckpoint


@pytest.fixture
def base(tmp_path: Path) -> BaseCheckpoint:
    """The small model, tied, so that a sync carries four tensors."""
    return write_base(tmp_path / "base", tied=True)


@pytest.fixture
def desk(tmp_path: Path, base: BaseCheckpoint) -> Iterator[Desk]:
    """A receiver with its store and its clock."""
    desk = Desk.open(tmp_path / "store", base)
    yield desk
    desk.close()
