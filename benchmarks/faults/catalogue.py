"""The store's catalogue as any program with SQLite sees it. Shares no code with live-eval."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What is on record of one sync."""

    policy_version: int | None
    state: str
    reason: str
    detail: str
    sealed: bool

    @property
    def ended(self) -> bool:
        """Whether nothing more can come of it."""
        return self.state != "receiving"


class CatalogueView:
    """Questions, and the one lie that the bench needs."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=30.0, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._lie: tuple[int, int] | None = None

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    def find(self, incarnation_id: str, weight_version: int) -> Record | None:
        """The record of a weight version of a life of the trainer."""
        rows = self._db.execute(
            "SELECT v.policy_version, v.state, v.reason, v.detail, v.sealed_at FROM versions v "
            "JOIN incarnations i ON i.number = v.incarnation "
            "WHERE i.incarnation_id = ? AND v.weight_version = ?",
            (incarnation_id, weight_version),
        ).fetchall()
        for row in rows:
            return Record(
                policy_version=row["policy_version"],
                state=row["state"],
                reason=row["reason"],
                detail=row["detail"],
                sealed=row["sealed_at"] is not None,
            )
        row = self._db.execute(
            "SELECT policy_version, reason, detail FROM discards "
            "WHERE incarnation_id = ? AND weight_version = ?",
            (incarnation_id, weight_version),
        ).fetchone()
        if row is None:
            return None
        return Record(
            policy_version=row["policy_version"],
            state="discarded",
            reason=row["reason"],
            detail=row["detail"],
            sealed=False,
        )

    def sealed_now(self) -> list[int]:
        """Versions that are said to be there."""
        return [
            row[0] for row in self._db.execute("SELECT policy_version FROM versions WHERE state = 'sealed'")
        ]

    def pretend_full(self, max_bytes: int) -> None:
        """Have a version that cannot go take the whole budget."""
        row = self._db.execute(
            "SELECT max(policy_version) AS newest, bytes FROM versions WHERE state = 'sealed'"
        ).fetchone()
        if row["newest"] is None:
            return
        self._lie = (row["newest"], row["bytes"])
        self._db.execute("INSERT OR REPLACE INTO pins VALUES (?, 'bench', 'export')", (row["newest"],))
        self._db.execute("UPDATE versions SET bytes = ? WHERE policy_version = ?", (max_bytes, row["newest"]))

    def no_more_full(self) -> None:
        """Take it back."""
        if self._lie is not None:
            version, num_bytes = self._lie
            self._lie = None
            self._db.execute("UPDATE versions SET bytes = ? WHERE policy_version = ?", (num_bytes, version))
            self._db.execute("DELETE FROM pins WHERE policy_version = ? AND owner = 'bench'", (version,))
