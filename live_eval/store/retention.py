"""Which versions to give up, decided from facts alone.

Pure: no files, no clock, no database. Invariants: a version pinned as running or export is never
given up; a plan that fits keeps the store within its budget; nothing that waits is given up for a
version that would not fit anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from live_eval.store.records import DROPPABLE, CollectReason, PinKind


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """A sealed version and what holds it."""

    policy_version: int
    num_bytes: int
    """Bytes it takes on disk, hard-linked files counted in full."""
    pins: frozenset[PinKind] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What to give up, in order, and whether the store is within its budget then."""

    collect: tuple[tuple[int, CollectReason], ...]
    fits: bool


def plan(
    holdings: Iterable[Holding],
    *,
    keep_newest: int,
    budget_bytes: int,
    other_bytes: int = 0,
    need_bytes: int = 0,
) -> Plan:
    """Decide what goes so that `need_bytes` more fit into `budget_bytes`.

    `other_bytes` is what the store holds beyond `holdings` and cannot give up. The order: unpinned
    versions beyond the newest `keep_newest` always go; then, only while bytes are short, unpinned
    ones from the oldest, then those that merely wait from the oldest. If even all of these are too
    few, only the first group goes and the plan does not fit.
    """
    oldest_first = sorted(holdings, key=lambda holding: holding.policy_version)
    kept = {holding.policy_version for holding in oldest_first[-keep_newest:]} if keep_newest > 0 else set()
    retired = [h for h in oldest_first if not h.pins and h.policy_version not in kept]
    spare = [h for h in oldest_first if not h.pins and h.policy_version in kept]
    waiting = [h for h in oldest_first if h.pins and h.pins <= DROPPABLE]

    excess = other_bytes + need_bytes - budget_bytes + sum(h.num_bytes for h in oldest_first)
    excess -= sum(h.num_bytes for h in retired)
    collect = [(h.policy_version, CollectReason.RETENTION) for h in retired]
    extra: list[tuple[int, CollectReason]] = []
    for group, reason in ((spare, CollectReason.MAKE_ROOM), (waiting, CollectReason.STORE_FULL)):
        for holding in group:
            if excess <= 0:
                break
            extra.append((holding.policy_version, reason))
            excess -= holding.num_bytes
    fits = excess <= 0
    return Plan(collect=tuple(collect + extra if fits else collect), fits=fits)
