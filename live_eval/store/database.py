"""One SQLite file that several processes write: opening it, and transactions on it.

Knows nothing of versions. Invariant: a transaction that was committed survives a power cut, and a
failed one leaves nothing.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from live_eval.errors import StoreError, StoreFull
from live_eval.sqlite import BUSY_TIMEOUT_S, SMALL_CACHE

_RETRY_S = 0.02


class Database:
    """A connection that threads of this process share, one transaction at a time."""

    def __init__(self, path: Path, *, schema: str) -> None:
        """Open or create the file and make sure of its tables; StoreError if that cannot be."""
        self.path = path
        self._lock = threading.RLock()
        try:
            self._connection = sqlite3.connect(
                path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise StoreError(f"{path}: cannot be opened ({error})") from error
        self._connection.row_factory = sqlite3.Row
        try:
            self._use_wal()
            # FULL: a number that was given out must not be given out again after a power cut.
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute(SMALL_CACHE)
            with self.write():
                for statement in schema.split(";"):
                    self._connection.execute(statement)
        except (sqlite3.Error, StoreError) as error:
            self._connection.close()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{path}: is not a usable catalogue ({error})") from error

    def _use_wal(self) -> None:
        # The switch to WAL does not wait for other openers as statements do, so it is tried again.
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees and locks the newest state; rolled back if the body raises.

        StoreFull if the disk cannot take it, StoreError for any other failure of the database.
        """
        with self._lock, self._mapped_errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # A full disk has already rolled the transaction back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def read(self, statement: str, *values: object) -> list[sqlite3.Row]:
        """Rows of one SELECT."""
        with self._lock, self._mapped_errors():
            return self._connection.execute(statement, values).fetchall()

    @contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            full = getattr(error, "sqlite_errorcode", None) in (
                sqlite3.SQLITE_FULL,
                sqlite3.SQLITE_IOERR_WRITE,
            )
            kind = StoreFull if full else StoreError
            raise kind(f"{self.path}: {error}") from error

    def close(self) -> None:
        """Close the connection; closing twice does nothing."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
