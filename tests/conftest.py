"""What holds for every test: no network services, reproducible random tests, no process left behind."""

from __future__ import annotations

import os
import uuid

import leftovers
import pytest
from hypothesis import settings

MARK = uuid.uuid4().hex

os.environ |= {
    leftovers.MARK_NAME: MARK,
    "WANDB_MODE": "offline",
    "WANDB_SILENT": "true",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A proxy must never stand between a test and its own servers.
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}

# The same examples on every run: a failure is there for all or for none.
# HYPOTHESIS_PROFILE=explore looks further.
settings.register_profile("same", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", max_examples=2000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test that leaves a process behind fails the run; the process is ended."""
    found = leftovers.wait_until_gone(MARK, patience_s=5.0)
    if found:
        leftovers.end(found)
        lines = [f"  {leftover.pid}: {leftover.command[:200]}" for leftover in found]
        print("\nprocesses that tests left behind:\n" + "\n".join(lines))
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
