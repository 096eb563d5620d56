"""What all connections to the project's SQLite databases have in common."""

from __future__ import annotations

BUSY_TIMEOUT_S = 30.0
"""How long a statement waits for another connection's write transaction; each of ours takes milliseconds."""
SMALL_CACHE = "PRAGMA cache_size=-256"
"""KiB a connection, of which a service has several; SQLite's own 2,000 fill over an hour. Pages come from the
system's cache all the same."""
