"""Versions that were given up before the receiver had them: what it is told, and their outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages import SyncBegin, SyncGivenUp, SyncOutcome

if TYPE_CHECKING:
    from live_eval.reasons import DiscardReason

MAX_UNTOLD = 256
"""Notes that are kept while the receiver does not answer; the oldest are let go."""
MAX_OUTCOMES = 4096
"""Outcomes that are kept until somebody asks; the oldest are let go."""


def given_up(
    begin: SyncBegin, reason: DiscardReason, detail: str, *, held_s: float | None = None
) -> SyncGivenUp:
    """The note that the sync of this begin will not come; `held_s` where the begin does not say it."""
    return SyncGivenUp(
        sync_id=begin.sync_id,
        run_id=begin.run_id,
        incarnation_id=begin.incarnation_id,
        weight_version=begin.weight_version,
        reason=reason,
        detail=detail,
        rollout_id=begin.rollout_id,
        train_step=begin.train_step,
        held_s=begin.held_s if held_s is None else held_s,
    )


def outcome_of(note: SyncGivenUp) -> SyncOutcome:
    """What became of it as far as the publisher knows."""
    return SyncOutcome(
        sync_id=note.sync_id,
        weight_version=note.weight_version,
        state="discarded",
        reason=note.reason,
        detail=note.detail,
    )
