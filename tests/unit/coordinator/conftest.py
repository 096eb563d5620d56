"""A coordinator's bench in a temporary directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.job_bench import Bench

MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[MakeBench]:
    """Makes one bench with these settings of the scheduler and the store."""
    made: list[Bench] = []

    def make(**settings: Any) -> Bench:
        made.append(Bench(tmp_path, **settings))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench()
