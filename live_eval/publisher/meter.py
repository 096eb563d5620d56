"""What syncs cost a trainer and what became of them, as metrics beside its own.

    live_eval/held_s       how long the last sync held the training thread, in seconds
    live_eval/max_held_s   the longest so far
    live_eval/syncs        syncs that came to their end in the trainer
    live_eval/discarded    how many are known to have become no version, aborted ones among them
    live_eval/faults       errors of live-eval that were kept from the trainer

What a sync cost travels with it too (`held_s` in its messages), so that the catalogue, and whoever reads
that, has it for each version and each discarded sync; these counts are one trainer's own.

Knows no transport. Invariant: one kind of trouble is logged once a minute, with how often it came
meanwhile, so that a trainer's log stays its own.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from live_eval.publisher.base import SyncReport
    from protocol.messages import SyncOutcome

logger = logging.getLogger(__name__)

QUIET_S = 60.0
PREFIX = "live_eval/"


class RareLog:
    """Logs each kind of trouble once in `quiet_s` seconds."""

    def __init__(self, *, quiet_s: float = QUIET_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet_s = quiet_s
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        self._kept_back: Counter[str] = Counter()

    def warn(self, kind: str, message: str, *, error: BaseException | None = None) -> bool:
        """Log it unless its kind was logged a moment ago; whether it was."""
        now, last = self._clock(), self._logged_at.get(kind)
        if last is not None and now - last < self._quiet_s:
            self._kept_back[kind] += 1
            return False
        self._logged_at[kind] = now
        more = self._kept_back.pop(kind, 0)
        suffix = f" ({more} more like this since the last such line)" if more else ""
        logger.warning("%s%s", message, suffix, exc_info=error)
        return True


class SyncMeter:
    """Counts for one source; used by the training thread."""

    def __init__(self, log: RareLog | None = None) -> None:
        self.log = log or RareLog()
        self._held_s = 0.0
        self._max_held_s = 0.0
        self._num_syncs = 0
        self._num_faults = 0
        self._reasons: Counter[str] = Counter()

    def reported(self, report: SyncReport) -> None:
        """A sync has let go of the training thread."""
        self._num_syncs += 1
        self._held_s = report.held_s
        self._max_held_s = max(self._max_held_s, report.held_s)
        logger.info(
            "weight version %d: %s, held %.3f s",
            report.weight_version,
            report.reason or "handed over",
            report.held_s,
        )

    def ended(self, outcome: SyncOutcome) -> None:
        """It is known what became of a sync."""
        if outcome.state == "sealed":
            logger.info("policy version %s is sealed", outcome.policy_version)
            return
        self._reasons[outcome.reason] += 1
        version = outcome.weight_version
        self.log.warn(
            outcome.reason, f"weight version {version} is discarded: {outcome.reason} ({outcome.detail})"
        )

    def failed(self, what: str, error: BaseException) -> None:
        """An error of live-eval was kept from the trainer."""
        self._num_faults += 1
        kind = f"{what}: {type(error).__name__}"
        self.log.warn(kind, f"live-eval failed at {what}; training goes on", error=error)

    @property
    def num_faults(self) -> int:
        """Errors that were kept from the trainer."""
        return self._num_faults

    def metrics(self) -> dict[str, float]:
        """All counts by name, for whatever the trainer logs to; reasons of discards each by name too."""
        found = {
            "held_s": self._held_s,
            "max_held_s": self._max_held_s,
            "syncs": float(self._num_syncs),
            "discarded": float(self._reasons.total()),
            "faults": float(self._num_faults),
        }
        found |= {f"discarded/{reason}": float(number) for reason, number in sorted(self._reasons.items())}
        return {PREFIX + name: value for name, value in found.items()}
