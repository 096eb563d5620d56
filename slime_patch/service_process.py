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

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the service of the configuration file."""
    parent, config = int(arguments[0]), arguments[1]
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        return 1
    from live_eval import service

    return service.main([config])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
