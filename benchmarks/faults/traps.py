"""A trap: what one process does to itself at one step of the protocol.

The bench arms a trap by writing a file; the process that comes to the step takes the file away
and acts, so that a trap springs once and the bench can see that it did. Probes are put around
the product's own functions in the worker; the product knows nothing of them.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BEFORE, AFTER = "before", "after"


@dataclass(frozen=True, kw_only=True, slots=True)
class Trap:
    """At `step`, before or after it, in bucket `index` where the step is a bucket's: do `action`."""

    action: str
    step: str
    when: str = BEFORE
    index: int = 0
    seconds: float = 0.0
    variant: int = 0
    """Which of several ways, where the action has some."""


class TrapFile:
    """Where the traps of one process lie; both sides use it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._taken = path.with_suffix(".taken")

    def arm(self, trap: Trap) -> None:
        """Set a trap; one at a time."""
        self.disarm()
        spare = self.path.with_suffix(".new")
        spare.write_text(json.dumps(asdict(trap)))
        spare.rename(self.path)

    def disarm(self) -> bool:
        """Take the trap away; whether it had sprung."""
        self.path.unlink(missing_ok=True)
        sprung = self.sprung
        self._taken.unlink(missing_ok=True)
        return sprung

    @property
    def sprung(self) -> bool:
        """Whether the process has come to it."""
        return self._taken.exists()

    def spring(self, step: str, when: str, index: int = 0) -> Trap | None:
        """Called by the process: act if a trap is here. A trap that is the caller's to act on is returned."""
        if not self.path.exists():
            return None
        try:
            trap = Trap(**json.loads(self.path.read_bytes()))
            if (trap.step, trap.when, trap.index) != (step, when, index):
                return None
            os.rename(self.path, self._taken)
        except FileNotFoundError:
            return None
        return None if act(trap) else trap

    def probe(
        self, owner: Any, name: str, step: str, index: Callable[..., int | None] = lambda *_: 0
    ) -> None:
        """Put probes before and after a function; `index` of None means that this call is none."""
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def probed(*args: Any, **kwargs: Any) -> Any:
            number = index(*args)
            if number is None:
                return inner(*args, **kwargs)
            self.spring(step, BEFORE, number)
            result = inner(*args, **kwargs)
            self.spring(step, AFTER, number)
            return result

        setattr(owner, name, probed)


def act(trap: Trap) -> bool:
    """Do what a process can do to itself; False for what is the caller's to do."""
    match trap.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop" | "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "slow":
            time.sleep(trap.seconds)
        case "full":
            raise OSError(28, "No space left on device (of the bench)")
        case "broken":
            raise OSError(5, "Input/output error (of the bench)")
        case "clock":
            CLOCK.offset_s = trap.seconds
        case _:
            return False
    return True


class JumpingClock:
    """The wall clock of a process, as far from the true one as a trap says."""

    def __init__(self) -> None:
        self.offset_s = 0.0
        self._time = time.time

    def __call__(self) -> float:
        return self._time() + self.offset_s


CLOCK = JumpingClock()
