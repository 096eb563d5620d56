"""Room for versions: reserving bytes, choosing what goes, and removing the files of what went.

Decides by live_eval.store.retention inside one transaction, so that a version which was chosen to
go cannot be pinned any more. Invariants: bytes are reserved before the first one is written; the
sum of what is reserved and not yet removed, spare files included, never exceeds `max_bytes`; what goes
is recorded first.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from live_eval.errors import StoreError, StoreFull
from live_eval.store.directories import StoreDirectories, free_bytes, tree_bytes
from live_eval.store.records import CollectReason, PinKind, VersionState
from live_eval.store.retention import Holding, Plan, plan

if TYPE_CHECKING:
    from live_eval.store.database import Database

DISK_HEADROOM_BYTES = 4 << 20
"""Left free on the disk, so that a full store can still write down that it is full."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Claim:
    """What the version that is being received needs."""

    policy_version: int
    num_bytes: int
    """In all, what it has already written included."""
    disk_bytes: int
    """What the disk can give it in all, as things are."""


class Room:
    """The byte budget of one store; safe for threads and processes."""

    def __init__(
        self,
        database: Database,
        directories: StoreDirectories,
        *,
        max_bytes: int,
        keep_newest: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._directories = directories
        self._max_bytes = max_bytes
        self._keep_newest = keep_newest
        self._clock = clock

    def reserve(self, policy_version: int, num_bytes: int) -> None:
        """Claim `num_bytes` in all for a version that is being received; a later call replaces the claim.

        Removes what retention gives up for it. StoreFull if it cannot fit; then nothing that is
        claimed or waiting was touched.
        """
        while True:
            self.remove_collected()
            claim = _Claim(
                policy_version=policy_version,
                num_bytes=num_bytes,
                disk_bytes=self._disk_bytes(policy_version),
            )
            if self._try_reserve(claim):
                written = tree_bytes(self._directories.staging_of(policy_version))
                self._directories.spares.trim(num_bytes - written)
                return

    def collect(self) -> list[tuple[int, CollectReason]]:
        """Give up what retention does not keep, remove its files, and say what it was."""
        with self._database.write() as db:
            decided = self._decide(db, None)
        self.remove_collected()
        return list(decided.collect)

    def remove_collected(self) -> None:
        """Remove the files of all collected versions; two processes may do so at once.

        StoreError if one cannot be removed: its bytes go on counting, and it is tried again next time.
        """
        rows = self._database.read(
            "SELECT policy_version FROM versions WHERE state = ? AND freed = 0", VersionState.COLLECTED
        )
        for row in rows:
            version = row["policy_version"]
            try:
                self._directories.remove_version(version, keep_spares=True)
            except OSError as error:
                raise StoreError(
                    f"the files of policy version {version} cannot be removed: {error}"
                ) from error
            with self._database.write() as db:
                db.execute("UPDATE versions SET freed = 1 WHERE policy_version = ?", (version,))

    def used_bytes(self) -> int:
        """Bytes that are claimed: hard-linked files in full, and what is not removed yet.

        Spare files are part of the claim of the version that is being received, which takes them.
        """
        (row,) = self._database.read(
            "SELECT COALESCE(SUM(bytes), 0) AS used,"
            " COALESCE(SUM(bytes) FILTER (WHERE state = ?), 0) AS claim FROM versions WHERE freed = 0",
            VersionState.RECEIVING,
        )
        return row["used"] + max(0, self._directories.spares.num_bytes() - row["claim"])

    def _disk_bytes(self, policy_version: int) -> int:
        written = tree_bytes(self._directories.staging_of(policy_version))
        spare = self._directories.spares.num_bytes()  # they go before anything new is made
        return free_bytes(self._directories.root) + written + spare - DISK_HEADROOM_BYTES

    def _try_reserve(self, claim: _Claim) -> bool:
        with self._database.write() as db:
            decided = self._decide(db, claim)
            if decided.collect:
                return False  # their files are in the way; remove them, then ask again
            if decided.fits:
                changed = db.execute(
                    "UPDATE versions SET bytes = ? WHERE policy_version = ? AND state = ?",
                    (claim.num_bytes, claim.policy_version, VersionState.RECEIVING),
                )
                if changed.rowcount != 1:
                    raise StoreError(f"policy version {claim.policy_version} is not being received")
                return True
            (in_the_way,) = db.execute(
                "SELECT COUNT(*) FROM versions WHERE state = ? AND freed = 0", (VersionState.COLLECTED,)
            ).fetchone()
        if in_the_way:
            return False  # another process gave them up just now
        raise StoreFull(
            f"policy version {claim.policy_version} needs {claim.num_bytes} bytes; the store may hold "
            f"{self._max_bytes} and has {self.used_bytes()}, the disk could give it {claim.disk_bytes}. "
            "Raise the budget, free the disk, or keep fewer versions"
        )

    def _decide(self, db: sqlite3.Connection, claim: _Claim | None) -> Plan:
        pins: dict[int, set[PinKind]] = {}
        for row in db.execute("SELECT policy_version, kind FROM pins"):
            pins.setdefault(row["policy_version"], set()).add(PinKind(row["kind"]))
        holdings: list[Holding] = []
        other_bytes = 0
        for row in db.execute("SELECT policy_version, bytes, state FROM versions WHERE freed = 0"):
            version = row["policy_version"]
            if row["state"] == VersionState.SEALED:
                kinds = frozenset(pins.get(version, ()))
                holdings.append(Holding(policy_version=version, num_bytes=row["bytes"], pins=kinds))
            elif claim is None or version != claim.policy_version:
                other_bytes += row["bytes"]
        budget = self._max_bytes
        if claim is not None:
            held = other_bytes + sum(holding.num_bytes for holding in holdings)
            budget = min(budget, held + claim.disk_bytes)
        decided = plan(
            holdings,
            keep_newest=self._keep_newest,
            budget_bytes=budget,
            other_bytes=other_bytes,
            need_bytes=claim.num_bytes if claim else 0,
        )
        for version, reason in decided.collect:
            db.execute(
                "UPDATE versions SET state = ?, reason = ?, ended_at = ? WHERE policy_version = ?",
                (VersionState.COLLECTED, reason, self._clock(), version),
            )
            db.execute("DELETE FROM pins WHERE policy_version = ?", (version,))
        return decided
