"""How a sync ended, as the message that a publisher gets.

Invariant: an outcome says what the catalogue says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from live_eval.store import VersionState
from protocol.messages import SyncBegin, SyncGivenUp, SyncOutcome

if TYPE_CHECKING:
    from live_eval.reasons import DiscardReason
    from live_eval.store import Manifest, VersionRecord, VersionStore


def sealed_outcome(begin: SyncBegin, manifest: Manifest) -> SyncOutcome:
    """The sync became this version."""
    return SyncOutcome(
        sync_id=begin.sync_id,
        weight_version=begin.weight_version,
        state="sealed",
        policy_version=manifest.policy_version,
        digest=manifest.digest,
        num_tensors=manifest.num_tensors,
        num_bytes=manifest.num_bytes,
    )


def discarded_outcome(
    sync: SyncBegin | SyncGivenUp, reason: DiscardReason | str, detail: str, *, policy_version: int | None
) -> SyncOutcome:
    """The sync never became a version; `policy_version` is the number that it had got, if any."""
    return SyncOutcome(
        sync_id=sync.sync_id,
        weight_version=sync.weight_version,
        state="discarded",
        policy_version=policy_version,
        reason=reason,
        detail=detail,
    )


def recorded_outcome(store: VersionStore, note: SyncBegin | SyncGivenUp) -> SyncOutcome | None:
    """What the catalogue has of this sync, perhaps from an earlier life of the receiver."""
    numbers = {i.number for i in store.incarnations() if i.incarnation_id == note.incarnation_id}
    for record in store.records():
        if record.incarnation in numbers and record.weight_version == note.weight_version:
            return _outcome_of(record, note)
    for refusal in store.discarded():
        if (refusal.incarnation_id, refusal.weight_version) == (note.incarnation_id, note.weight_version):
            return discarded_outcome(note, refusal.reason, refusal.detail, policy_version=None)
    return None


def begin_of(note: SyncGivenUp) -> SyncBegin:
    """The begin that never came."""
    return SyncBegin(
        sync_id=note.sync_id,
        run_id=note.run_id,
        incarnation_id=note.incarnation_id,
        weight_version=note.weight_version,
        sources=("",),
        rollout_id=note.rollout_id,
        train_step=note.train_step,
    )


def _outcome_of(record: VersionRecord, note: SyncBegin | SyncGivenUp) -> SyncOutcome:
    if record.state is VersionState.DISCARDED:
        return discarded_outcome(note, record.reason, record.detail, policy_version=record.policy_version)
    return SyncOutcome(
        sync_id=note.sync_id,
        weight_version=note.weight_version,
        state="sealed",
        policy_version=record.policy_version,
        digest=record.digest,
        num_tensors=record.num_tensors,
        num_bytes=record.num_bytes,
    )
