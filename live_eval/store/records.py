"""What the catalogue says of versions, pins, incarnations and discards: plain frozen records.

States of a version:  receiving -> sealed -> collected
                      receiving -> discarded
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

FRESH_OWNER = "fresh"
"""Owner of the pin that a version is born with; whoever schedules versions takes it away."""


class VersionState(StrEnum):
    """Where a policy version is in its life."""

    RECEIVING = "receiving"
    SEALED = "sealed"
    DISCARDED = "discarded"
    COLLECTED = "collected"
    """It was sealed; its files have been given up for their bytes."""


class PinKind(StrEnum):
    """Why a version is kept."""

    FRESH = "fresh"
    """Sealed, and nobody has yet decided whether it is due."""
    WAITING = "waiting"
    """Due; its evaluation has not started."""
    RUNNING = "running"
    EXPORT = "export"


DROPPABLE = frozenset({PinKind.FRESH, PinKind.WAITING})
"""Pins that give way when a newer version needs the bytes."""


class CollectReason(StrEnum):
    """Why a sealed version's files were given up."""

    RETENTION = "retention"
    """Nobody needed it and it was not among the newest to keep."""
    MAKE_ROOM = "make_room"
    """Nobody needed it and a newer version needed its bytes."""
    STORE_FULL = "store_full"
    """It was waiting to be evaluated: a newer version needed its bytes. It counts as dropped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Incarnation:
    """One life of the trainer."""

    number: int
    """1, 2, ... in order of appearance."""
    incarnation_id: str
    offset: int
    """policy version = offset + weight version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionRecord:
    """One row of the catalogue: a policy version that was given out, in whatever state."""

    policy_version: int
    incarnation: int
    weight_version: int
    run_id: str
    rollout_id: int | None
    train_step: int | None
    state: VersionState
    reason: str
    """A DiscardReason or a CollectReason, else empty."""
    detail: str
    num_tensors: int
    num_bytes: int
    """Tensor data in bytes; 0 before it is sealed."""
    digest: str
    same_as: int | None
    """The newest earlier version with the same digest, which should not be there if weights change."""
    began_at: float
    sealed_at: float | None
    ended_at: float | None
    """When it was discarded or collected."""
    held_s: float | None = None
    """Seconds for which its sync held the training thread; None if its sources do not say so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DiscardRecord:
    """A sync that never became a version."""

    policy_version: int | None
    """None if it was refused before it got a number."""
    incarnation_id: str
    weight_version: int
    rollout_id: int | None
    train_step: int | None
    reason: str
    """A live_eval.reasons.DiscardReason."""
    detail: str
    ended_at: float
    held_s: float | None = None
    """Seconds for which the sync held the training thread; None if its sources do not say so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PinRecord:
    """One claim on one version."""

    policy_version: int
    owner: str
    kind: PinKind
