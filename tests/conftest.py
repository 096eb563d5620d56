"""What holds for every test: no network services, reproducible random tests, no process left behind."""

from __future__ import annotations

import os
import uuid

import leftovers
import pytest
from fakes import browser
from hypothesis import settings

MARK = uuid.uuid4().hex

os.environ |= {
    leftovers.MARK_NAME: MARK,
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would run its workers at nice 15: on a busy machine an actor would start for minutes.
    "RAY_worker_niceness": "0",
    # A proxy must never stand between a test and its own servers.
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}

# The same examples on every run: a failure is there for all or for none.
# HYPOTHESIS_PROFILE=explore looks further.
settings.register_profile("same", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


NOT_RUN = pytest.StashKey[int]()
"""Number of tests that need a browser where there is none."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a browser its tests are not run, which the closing lines say."""
    if not browser.why_not():
        return
    left_out = [item for item in items if item.get_closest_marker("browser")]
    config.stash[NOT_RUN] = len(left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what was not run."""
    if number := config.stash.get(NOT_RUN, 0):
        terminalreporter.write_line(f"NOT RUN: {number} tests of the page: {browser.why_not()}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test that leaves a process behind fails the run; the process is ended."""
    found = leftovers.wait_until_gone(MARK, patience_s=30.0)
    if found:
        leftovers.end(found)
        lines = [f"  {leftover.pid}: {leftover.command[:200]}" for leftover in found]
        print("\nprocesses that tests left behind:\n" + "\n".join(lines))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
