"""Counts what became of each sync, by the catalogue, the sealed files and what the trainer was told.

Invariant: each sync is counted once, as sealed, discarded or never told.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.faults import model
from benchmarks.faults.catalogue import CatalogueView, Record
from benchmarks.faults.checker import Checker
from benchmarks.faults.damage import LIED_VERSION
from benchmarks.faults.plan import OUTSIDE

if TYPE_CHECKING:
    from benchmarks.faults.plan import Fault
    from benchmarks.faults.tally import Tally
    from benchmarks.faults.trainer import Held
    from benchmarks.faults.workers import Desk

END_S = 6.0
"""Longest time until a sync whose trainer is gone has ended."""
LOOK_S = 0.01


@dataclass(kw_only=True, slots=True)
class SyncEntry:
    """A sync that was asked of the trainer."""

    number: int
    """Replays its fault."""
    life: int
    weight_version: int
    fault: Fault
    held: Held | None = None
    told: tuple[str, str] | None = None
    died: bool = False
    """Its trainer ended before it was known what became of it."""


class Account:
    """Of one run."""

    def __init__(self, desk: Desk, tally: Tally, *, tells: bool) -> None:
        """`tells`: the trainer is told what became of each of its syncs."""
        self.tally = tally
        self._tells = tells
        self.catalogue = CatalogueView(desk.store / "catalogue.sqlite")
        self.untold: list[SyncEntry] = []
        """Ended, and the trainer does not know yet; it does when it has had another sync."""
        self._versions = desk.store / "versions"
        self._checker = Checker(self._versions)
        self._owed: list[SyncEntry] = []
        """Syncs without a record: a full disk could not take it, or nobody heard of them."""

    def close(self) -> None:
        """Let go of the catalogue."""
        self.catalogue.close()

    def count(self, sync: SyncEntry, *, sprung: bool) -> None:
        """What was asked for, and how it was for the trainer."""
        tally, fault, held = self.tally, sync.fault, sync.held
        tally.syncs += 1
        tally.kinds[fault.kind] += 1
        if fault.trap is not None:
            tally.not_sprung += not sprung
            tally.steps[fault.step] += sprung
        if held is None:
            return
        if fault.kind not in ("trainer stop", "trainer freeze"):
            tally.held_s = max(tally.held_s, held.held_s)
            tally.held_ours_s = max(tally.held_ours_s, held.held_s - held.waited_s)
        if held.error:
            tally.trainer_errors += 1
            if not held.error.startswith("TransportError") or fault.kind in ("none", *OUTSIDE):
                self._trouble(sync, f"the trainer raised {held.error}")

    def close_entry(self, sync: SyncEntry, *, last: bool = False) -> None:
        """The one end of a sync; what the trainer was told must be the same."""
        record = self._ended(sync)
        if record is not None:
            self._compare(sync, record)
        elif not last:
            self._owed.append(sync)
        elif sync.died:
            self.tally.never_told += 1
        else:
            self._trouble(sync, f"no record of it; the trainer has {sync.told}")

    def late(self, sync: SyncEntry) -> None:
        """Ended, other syncs have passed since, and its trainer still lives."""
        self._trouble(sync, "ended, and the trainer was never told")

    def look(self, number: int) -> None:
        """Read what has come under versions/."""
        before = len(self._checker.findings)
        self._checker.look()
        for finding in self._checker.findings[before:]:
            self.tally.findings[finding.kind] += 1
            self.tally.trouble(number, f"{finding.kind}: {finding.version} {finding.detail}")

    def must_have_ended(self, sync: SyncEntry, silence_s: float) -> None:
        """Its trainer has been silent for longer than a receiver may bear."""
        record = self.catalogue.find(model.incarnation_id(sync.life), sync.weight_version)
        if record is not None and not record.ended:
            self._trouble(sync, f"still open after {silence_s:g} s of silence")

    def finish(self, *, life: int) -> None:
        """Close what is owed, and compare all files with the catalogue. `life`: of the last trainer."""
        for sync in self._owed:
            # What a trainer knows alone is gone with it.
            sync.died = sync.died or (sync.life != life and sync.told is None)
            self.close_entry(sync, last=True)
        self.look(-1)
        self.tally.checked = len([origin for origin in self._checker.seen.values() if origin is not None])
        there = set(os.listdir(self._versions))
        sealed = {f"v{number:06d}" for number in self.catalogue.sealed_now()}
        if there != sealed:
            self.tally.trouble(-1, f"files and catalogue differ: {sorted(there ^ sealed)}")

    def _compare(self, sync: SyncEntry, record: Record) -> None:
        tally, unfaulted = self.tally, sync.fault.kind == "none"
        tally.unfaulted += unfaulted
        if record.sealed:
            tally.sealed += 1
            tally.unfaulted_sealed += unfaulted
            tally.sealed_kinds[sync.fault.kind] += 1
            self._must_be_read(sync, record)
        else:
            tally.discarded[record.reason or "no reason"] += 1
            if not record.reason or unfaulted:
                self._trouble(sync, f"discarded: {record.reason} {record.detail}")
        said = "sealed" if record.sealed else "discarded"
        if sync.told is None and not sync.died and self._tells:
            self.untold.append(sync)
        elif sync.told is not None and sync.told[0] != said:
            self._trouble(sync, f"{said}, and the trainer was told {sync.told}")

    def _ended(self, sync: SyncEntry) -> Record | None:
        """Its record once it has ended; None if there is none at all."""
        deadline = time.monotonic() + END_S
        life = model.incarnation_id(sync.life)
        while True:
            record = self.catalogue.find(life, sync.weight_version)
            if record is None and sync.told is not None and sync.told[1] == "bad_weight_version":
                record = self.catalogue.find(life, LIED_VERSION)
            if record is None or record.ended:
                return record
            if time.monotonic() > deadline:
                self._trouble(sync, f"still open after {END_S:g} s")
                return None
            time.sleep(LOOK_S)

    def _must_be_read(self, sync: SyncEntry, record: Record) -> None:
        self.look(sync.number)
        seen = self._checker.seen
        origin = seen.get(record.policy_version or 0)
        if origin is not None and origin != model.Origin(sync.life, sync.weight_version):
            self._trouble(sync, f"recorded as version {record.policy_version}, which holds {origin}")
        if record.policy_version not in seen:
            self._trouble(sync, f"version {record.policy_version} went before it was read")

    def _trouble(self, sync: SyncEntry, what: str) -> None:
        self.tally.trouble(sync.number, f"{sync.fault.kind}: {what}")
