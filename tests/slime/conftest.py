"""Tests against a real checkout of slime: `make test-slime SLIME_DIR=...`.

SLIME_DIR is the checkout, which is never written to; SETUP_DIR the folder that tests/slime_cpu/setup.sh
made. Without SLIME_DIR nothing here is collected, and the run says so.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

collect_ignore_glob = [] if "SLIME_DIR" in os.environ else ["test_*.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if collect_ignore_glob:
        terminalreporter.write_line("tests/slime: not run, because SLIME_DIR is not set")


@pytest.fixture(scope="session")
def slime_dir() -> Path:
    return Path(os.environ["SLIME_DIR"]).absolute()
