"""A slime job's command line, parsed as slime would."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes.slime_standins import ENGINE_FLAGS, Parse, slime_args

from slime_patch.arguments import add_arguments


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    """parse("--eval-mode latest-synced", colocate=True) -> (slime's arguments, the words)."""

    def parsed(line: str = "", **changes: Any) -> tuple[Namespace, list[str]]:
        words = line.split()
        register = partial(add_arguments, engine_flags=ENGINE_FLAGS)
        return slime_args(words, base=tmp_path, register=register, **changes), words

    return parsed
