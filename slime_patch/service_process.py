"""The service's process below its actor: it dies with the actor, at once and without a word.

A service that is told to stop ends all jobs. That is for the end of a job, not for an actor that Ray
restarts: a service that is killed leaves its jobs in the ledger, and the next life takes them up.

    python -m slime_patch.service_process PARENT_PID CONFIG.json
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the service of the configuration file, with slime's eval function where a plan names it."""
    parent, config = int(arguments[0]), arguments[1]
    if not die_with(parent):
        return 1
    from live_eval import service
    from slime_patch.slime_eval.plan import PLAN_ENV

    plan = os.environ.get(PLAN_ENV)
    if plan is None:
        return service.main([config])
    from slime_patch.slime_eval.run import SlimeRuns

    return service.main([config], runs=SlimeRuns(Path(plan)))


def die_with(parent: int) -> bool:
    """Let the kernel kill this process when `parent` ends; False if it has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent  # it may have died before the line above


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
