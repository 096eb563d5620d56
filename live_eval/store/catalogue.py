"""The catalogue: which policy versions there are, in what state, and who holds them.

One SQLite file, written by the receiver and the service at once; it alone decides between them.
Knows no files but its own; bytes are live_eval.store.room's matter. Invariants: a policy version is
given out once and numbers only rise; a version leaves `receiving` once; only a sealed one has pins.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.errors import NoSuchVersion, StoreError, VersionRefused
from live_eval.reasons import DiscardReason
from live_eval.store.database import Database
from live_eval.store.records import (
    FRESH_OWNER,
    CollectReason,
    DiscardRecord,
    Incarnation,
    PinKind,
    PinRecord,
    VersionRecord,
    VersionState,
)

if TYPE_CHECKING:
    from live_eval.store.manifest import Manifest

MAX_WEIGHT_VERSION = 2**53
"""Larger numbers are no counter, and JSON readers would round them."""

# bytes: what the version takes or has reserved on disk; they count until `freed` is 1.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS incarnations (
    number INTEGER PRIMARY KEY, incarnation_id TEXT NOT NULL UNIQUE, offset INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS versions (
    policy_version INTEGER PRIMARY KEY, incarnation INTEGER NOT NULL, weight_version INTEGER NOT NULL,
    run_id TEXT NOT NULL, rollout_id INTEGER, train_step INTEGER,
    state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '', detail TEXT NOT NULL DEFAULT '',
    num_tensors INTEGER NOT NULL DEFAULT 0, num_bytes INTEGER NOT NULL DEFAULT 0,
    digest TEXT NOT NULL DEFAULT '', same_as INTEGER,
    began_at REAL NOT NULL, sealed_at REAL, ended_at REAL,
    bytes INTEGER NOT NULL DEFAULT 0, freed INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS versions_by_state ON versions (state, policy_version);
CREATE TABLE IF NOT EXISTS pins (
    policy_version INTEGER NOT NULL, owner TEXT NOT NULL, kind TEXT NOT NULL,
    PRIMARY KEY (policy_version, owner));
CREATE TABLE IF NOT EXISTS discards (
    id INTEGER PRIMARY KEY, policy_version INTEGER, incarnation_id TEXT NOT NULL,
    weight_version INTEGER NOT NULL, rollout_id INTEGER, train_step INTEGER,
    reason TEXT NOT NULL, detail TEXT NOT NULL, ended_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS held (
    incarnation_id TEXT NOT NULL, weight_version INTEGER NOT NULL, held_s REAL NOT NULL,
    PRIMARY KEY (incarnation_id, weight_version)) WITHOUT ROWID
"""
_VERSION_HELD = (
    "(SELECT held_s FROM held JOIN incarnations USING (incarnation_id) "
    "WHERE number = versions.incarnation AND held.weight_version = versions.weight_version) AS held_s"
)
_DISCARD_HELD = (
    "(SELECT held_s FROM held WHERE held.incarnation_id = discards.incarnation_id "
    "AND held.weight_version = discards.weight_version) AS held_s"
)
_RECORD_COLUMNS = ", ".join([name for name in VersionRecord.__slots__ if name != "held_s"] + [_VERSION_HELD])
_DISCARD_COLUMNS = ", ".join([name for name in DiscardRecord.__slots__ if name != "held_s"] + [_DISCARD_HELD])


class Catalogue:
    """All questions to the catalogue and all changes of it; safe for threads and processes."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self.database = database
        self._clock = clock

    @classmethod
    def open(cls, path: str | Path, *, clock: Callable[[], float] = time.time) -> Catalogue:
        """Open or create the catalogue file; StoreError if it cannot be used."""
        return cls(Database(Path(path), schema=_SCHEMA), clock=clock)

    def close(self) -> None:
        """Close the database connection."""
        self.database.close()

    # --- numbers ------------------------------------------------------------------------

    def register_incarnation(self, incarnation_id: str, first_weight_version: int) -> Incarnation:
        """The incarnation of this id, made now if it is new.

        The first one gives weight versions out as policy versions; a later one continues after the
        last number given. VersionRefused (bad_weight_version) if `first_weight_version` is no
        positive integer.
        """
        _check_weight_version(first_weight_version)
        with self.database.write() as db:
            row = db.execute(
                "SELECT * FROM incarnations WHERE incarnation_id = ?", (incarnation_id,)
            ).fetchone()
            if row is None:
                (number,) = db.execute("SELECT COALESCE(MAX(number), 0) + 1 FROM incarnations").fetchone()
                offset = 0 if number == 1 else _last_number(db) + 1 - first_weight_version
                db.execute("INSERT INTO incarnations VALUES (?, ?, ?)", (number, incarnation_id, offset))
                return Incarnation(number=number, incarnation_id=incarnation_id, offset=offset)
        return _incarnation(row)

    def incarnations(self) -> list[Incarnation]:
        """All incarnations, the oldest first."""
        return [_incarnation(row) for row in self.database.read("SELECT * FROM incarnations ORDER BY number")]

    def allocate(
        self,
        incarnation: Incarnation,
        weight_version: int,
        *,
        run_id: str = "",
        rollout_id: int | None = None,
        train_step: int | None = None,
    ) -> int:
        """Give the policy version of this weight version out and open its row as `receiving`.

        VersionRefused (bad_weight_version) if the number is no positive integer, does not rise, or
        its incarnation has been followed by another.
        """
        _check_weight_version(weight_version)
        number = incarnation.offset + weight_version
        with self.database.write() as db:
            (newest,) = db.execute("SELECT MAX(number) FROM incarnations").fetchone()
            if newest != incarnation.number:
                raise VersionRefused(
                    DiscardReason.BAD_WEIGHT_VERSION,
                    f"incarnation {incarnation.number} has ended: incarnation {newest} has begun since",
                )
            last = _last_number(db)
            if number <= last:
                raise VersionRefused(
                    DiscardReason.BAD_WEIGHT_VERSION,
                    f"weight version {weight_version} is policy version {number}, but {last} was given out",
                )
            db.execute(
                "INSERT INTO versions (policy_version, incarnation, weight_version, run_id, rollout_id, "
                "train_step, state, began_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    number,
                    incarnation.number,
                    weight_version,
                    run_id,
                    rollout_id,
                    train_step,
                    VersionState.RECEIVING,
                    self._clock(),
                ),
            )
        return number

    # --- the life of a version ----------------------------------------------------------

    def mark_sealed(self, manifest: Manifest, *, disk_bytes: int) -> VersionRecord:
        """receiving -> sealed, with a `fresh` pin; StoreError if the version was not receiving."""
        version = manifest.policy_version
        with self.database.write() as db:
            same = db.execute(
                "SELECT MAX(policy_version) FROM versions WHERE digest = ? AND policy_version < ?",
                (manifest.digest, version),
            ).fetchone()[0]
            changed = db.execute(
                "UPDATE versions SET state = ?, num_tensors = ?, num_bytes = ?, digest = ?, same_as = ?, "
                "sealed_at = ?, bytes = ? WHERE policy_version = ? AND state = ?",
                (
                    VersionState.SEALED,
                    manifest.num_tensors,
                    manifest.num_bytes,
                    manifest.digest,
                    same,
                    manifest.sealed_at,
                    disk_bytes,
                    version,
                    VersionState.RECEIVING,
                ),
            )
            if changed.rowcount != 1:
                raise StoreError(f"policy version {version} is not being received, so it cannot be sealed")
            db.execute("INSERT INTO pins VALUES (?, ?, ?)", (version, FRESH_OWNER, PinKind.FRESH))
        return self.get(version)

    def mark_discarded(self, policy_version: int, reason: DiscardReason, detail: str) -> bool:
        """receiving -> discarded, its files gone; False if it was not receiving any more."""
        with self.database.write() as db:
            changed = db.execute(
                "UPDATE versions SET state = ?, reason = ?, detail = ?, ended_at = ?, bytes = 0, freed = 1 "
                "WHERE policy_version = ? AND state = ?",
                (
                    VersionState.DISCARDED,
                    reason,
                    detail,
                    self._clock(),
                    policy_version,
                    VersionState.RECEIVING,
                ),
            )
            if changed.rowcount == 1:
                db.execute(
                    "INSERT INTO discards (policy_version, incarnation_id, weight_version, rollout_id, "
                    "train_step, reason, detail, ended_at) SELECT policy_version, incarnation_id, "
                    "weight_version, rollout_id, train_step, reason, detail, ended_at FROM versions "
                    "JOIN incarnations ON number = incarnation WHERE policy_version = ?",
                    (policy_version,),
                )
        return changed.rowcount == 1

    def sync_refused(
        self,
        *,
        incarnation_id: str,
        weight_version: int,
        reason: DiscardReason,
        detail: str,
        rollout_id: int | None = None,
        train_step: int | None = None,
    ) -> None:
        """Record a sync that ended before it got a policy version."""
        weight_version = max(-MAX_WEIGHT_VERSION, min(weight_version, MAX_WEIGHT_VERSION))
        with self.database.write() as db:
            db.execute(
                "INSERT INTO discards (incarnation_id, weight_version, rollout_id, train_step, reason, "
                "detail, ended_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (incarnation_id, weight_version, rollout_id, train_step, reason, detail, self._clock()),
            )

    def note_held(self, incarnation_id: str, weight_version: int, held_s: float) -> None:
        """A source of this sync held its training thread so long; of several the longest counts."""
        if not 0 < weight_version <= MAX_WEIGHT_VERSION or held_s < 0:
            return
        with self.database.write() as db:
            db.execute(
                "INSERT INTO held VALUES (?, ?, ?) ON CONFLICT DO UPDATE "
                "SET held_s = max(held_s, excluded.held_s)",
                (incarnation_id, weight_version, held_s),
            )

    # --- pins ---------------------------------------------------------------------------

    def pin(self, policy_version: int, owner: str, kind: PinKind) -> None:
        """Claim a sealed version; one owner has one pin on it. NoSuchVersion if it is not sealed."""
        with self.database.write() as db:
            if not _is_sealed(db, policy_version):
                raise NoSuchVersion(
                    f"policy version {policy_version} is not in the store, so it cannot be pinned"
                )
            db.execute("INSERT OR REPLACE INTO pins VALUES (?, ?, ?)", (policy_version, owner, PinKind(kind)))

    def unpin(self, policy_version: int, owner: str) -> bool:
        """Give a claim up; False if there was none."""
        with self.database.write() as db:
            changed = db.execute(
                "DELETE FROM pins WHERE policy_version = ? AND owner = ?", (policy_version, owner)
            )
        return changed.rowcount == 1

    def upgrade(self, policy_version: int, owner: str, kind: PinKind = PinKind.RUNNING) -> bool:
        """Change the kind of a claim; False if the version was dropped, or the claim is gone."""
        with self.database.write() as db:
            changed = db.execute(
                "UPDATE pins SET kind = ? WHERE policy_version = ? AND owner = ?",
                (PinKind(kind), policy_version, owner),
            )
        return changed.rowcount == 1

    def pins(self, policy_version: int | None = None) -> list[PinRecord]:
        """All claims, or those on one version."""
        rows = self.database.read(
            "SELECT * FROM pins WHERE ? IS NULL OR policy_version = ? ORDER BY policy_version, owner",
            policy_version,
            policy_version,
        )
        return [
            PinRecord(policy_version=row["policy_version"], owner=row["owner"], kind=PinKind(row["kind"]))
            for row in rows
        ]

    # --- questions ----------------------------------------------------------------------

    def get(self, policy_version: int) -> VersionRecord:
        """The row of a version in whatever state; NoSuchVersion if the number was never given out."""
        rows = self.database.read(
            f"SELECT {_RECORD_COLUMNS} FROM versions WHERE policy_version = ?", policy_version
        )
        if not rows:
            raise NoSuchVersion(f"policy version {policy_version} was never given out")
        return _record(rows[0])

    def versions(self, *states: VersionState, after: int = 0) -> list[VersionRecord]:
        """Rows in these states (all if none is named) behind a number, by rising policy version."""
        wanted = states or tuple(VersionState)
        marks = ", ".join("?" * len(wanted))
        rows = self.database.read(
            f"SELECT {_RECORD_COLUMNS} FROM versions WHERE state IN ({marks}) AND policy_version > ? "
            "ORDER BY policy_version",
            *wanted,
            after,
        )
        return [_record(row) for row in rows]

    def dropped(self) -> list[VersionRecord]:
        """Versions that waited to be evaluated and were given up for their bytes."""
        return [
            record
            for record in self.versions(VersionState.COLLECTED)
            if record.reason == CollectReason.STORE_FULL
        ]

    def discarded(self, *, skip: int = 0) -> list[DiscardRecord]:
        """Syncs that never became a version, in the order in which they ended, without the first `skip`."""
        statement = f"SELECT {_DISCARD_COLUMNS} FROM discards ORDER BY id LIMIT -1 OFFSET ?"
        rows = self.database.read(statement, skip)
        return [DiscardRecord(**dict(row)) for row in rows]

    def total_held_s(self) -> float | None:
        """Seconds for which all syncs together held the trainer; None if none has said so."""
        (row,) = self.database.read("SELECT SUM(held_s) AS total FROM held")
        return row["total"]


def _check_weight_version(weight_version: int) -> None:
    if type(weight_version) is not int or not 0 < weight_version <= MAX_WEIGHT_VERSION:
        raise VersionRefused(
            DiscardReason.BAD_WEIGHT_VERSION, f"weight version {weight_version!r} is no positive integer"
        )


def _last_number(db: sqlite3.Connection) -> int:
    return db.execute("SELECT COALESCE(MAX(policy_version), 0) FROM versions").fetchone()[0]


def _is_sealed(db: sqlite3.Connection, policy_version: int) -> bool:
    row = db.execute("SELECT state FROM versions WHERE policy_version = ?", (policy_version,)).fetchone()
    return row is not None and row["state"] == VersionState.SEALED


def _incarnation(row: sqlite3.Row) -> Incarnation:
    return Incarnation(number=row["number"], incarnation_id=row["incarnation_id"], offset=row["offset"])


def _record(row: sqlite3.Row) -> VersionRecord:
    fields = dict(row)
    fields["state"] = VersionState(fields["state"])
    return VersionRecord(**fields)
