"""The API's bench in a temporary directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.http_bench import HttpBench

MakeHttp = Callable[..., HttpBench]


@pytest.fixture
def make_http(tmp_path: Path) -> Iterator[MakeHttp]:
    """Makes one bench with these settings of the API."""
    made: list[HttpBench] = []

    def make(**http: Any) -> HttpBench:
        made.append(HttpBench(tmp_path, **http))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def http(make_http: MakeHttp) -> HttpBench:
    return make_http()
