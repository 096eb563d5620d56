"""What changed in the store since the last look, as events in the order in which they happened.

The catalogue is the truth; the receiver's StoreChanged only says when to look. Knows nothing of
schedules. A sync whose receiver died and does not come back is reported as abandoned, so that
nobody waits for it; what becomes of it later is reported all the same. Invariant: over the life
of a feed each policy version is reported as sealed at most once and as lost at most once, and
every discarded sync exactly once. What one look costs does not grow with the versions that are over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from live_eval.store.records import CollectReason, VersionState

if TYPE_CHECKING:
    from live_eval.store.records import DiscardRecord, VersionRecord
    from live_eval.store.store import VersionStore

ABANDONED_S = 60.0
"""A receiver that is started again is there by then."""
ENDS = (VersionState.DISCARDED, VersionState.COLLECTED)
"""Of a version; no other state follows."""


@dataclass(frozen=True, slots=True)
class SyncBegan:
    """A sync is under way that will have this policy version if it is sealed."""

    policy_version: int


@dataclass(frozen=True, slots=True)
class SyncAbandoned:
    """A sync is open, and for a while no receiver has lived that could end it."""

    policy_version: int


@dataclass(frozen=True, slots=True)
class SyncDiscarded:
    """A sync ended without a version."""

    record: DiscardRecord
    key: str
    """Unique name of this discard, the same in every life of the service."""


@dataclass(frozen=True, slots=True)
class VersionSealed:
    """A version is in the store."""

    record: VersionRecord


@dataclass(frozen=True, slots=True)
class VersionLost:
    """A version that waited to be evaluated was given up for its bytes."""

    record: VersionRecord


@dataclass(frozen=True, slots=True)
class IncarnationEnded:
    """The trainer was started again; this incarnation sends no more."""

    number: int


Change = SyncBegan | SyncAbandoned | SyncDiscarded | VersionSealed | VersionLost | IncarnationEnded


class VersionsFeed:
    """Compares the catalogue with what was reported before."""

    def __init__(self, store: VersionStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._alone_since: float | None = None
        self._abandoned: set[int] = set()
        self._states: dict[int, VersionState] = {}
        """As they were, of versions behind `_over`."""
        self._over = 0
        """Nothing becomes of versions up to this number any more: they are not read again."""
        self._num_discards = 0
        self._incarnation = 0

    def poll(self) -> list[Change]:
        """All changes since the last call: versions by number, discards, incarnations, what is abandoned."""
        changes: list[Change] = []
        for record in self._store.records(after=self._over):
            before = self._states.get(record.policy_version)
            if before is record.state:
                continue
            self._states[record.policy_version] = record.state
            changes += _of(record, before)
        self._forget_what_is_over()
        changes += self._discards()
        changes += self._incarnations()
        changes += self._left_alone()
        return changes

    def _forget_what_is_over(self) -> None:
        for number in sorted(self._states):
            if self._states[number] not in ENDS:
                return
            self._over = number
            del self._states[number]

    def _left_alone(self) -> list[Change]:
        receiving = {number for number, state in self._states.items() if state is VersionState.RECEIVING}
        if not receiving - self._abandoned or self._store.has_writer():
            self._alone_since = None
            return []
        now = self._clock()
        self._alone_since = now if self._alone_since is None else self._alone_since
        if now - self._alone_since < ABANDONED_S:
            return []
        found = sorted(receiving - self._abandoned)
        self._abandoned |= receiving
        return [SyncAbandoned(number) for number in found]

    def _discards(self) -> list[Change]:
        new = self._store.discarded(skip=self._num_discards)
        begin, self._num_discards = self._num_discards, self._num_discards + len(new)
        return [SyncDiscarded(record, _key(record, begin + i)) for i, record in enumerate(new)]

    def _incarnations(self) -> list[Change]:
        numbers = [incarnation.number for incarnation in self._store.incarnations()]
        newest = max(numbers, default=0)
        ended = [number for number in numbers if self._incarnation <= number < newest]
        self._incarnation = newest
        return [IncarnationEnded(number) for number in ended]


def _of(record: VersionRecord, before: VersionState | None) -> list[Change]:
    if record.state is VersionState.RECEIVING:
        return [SyncBegan(record.policy_version)]
    if record.state is VersionState.SEALED:
        return [VersionSealed(record)]
    if record.state is VersionState.COLLECTED:
        # What nobody saw sealed was still due: it is reported as sealed, then as lost.
        sealed: list[Change] = [] if before is VersionState.SEALED else [VersionSealed(record)]
        lost: list[Change] = [VersionLost(record)] if record.reason == CollectReason.STORE_FULL else []
        return sealed + lost
    return []


def _key(record: DiscardRecord, position: int) -> str:
    if record.policy_version is not None:
        return f"discarded/v{record.policy_version}"
    return f"refused/{record.incarnation_id}/{record.weight_version}/{position}"
