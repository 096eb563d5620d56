"""One run: sync after sync, each with its fault, each repaired and accounted for before the next.

    arm -> sync -> attend (resume, kill, notice deaths) -> outcomes -> repair -> account

Invariant: before a sync begins, trainer, receiver and service live and answer, so that a sync
without a fault has no excuse.
"""

from __future__ import annotations

import math
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.faults import model, plan
from benchmarks.faults.account import Account, SyncEntry
from benchmarks.faults.crew import LOOK_S, STORE, Crew, TrainerHangs
from benchmarks.faults.disk import SmallDisk
from benchmarks.faults.processes import alive, kill, pid_of, send, state_of
from benchmarks.faults.tally import Tally
from benchmarks.faults.trainer import Ask, Held, Sync, Told
from benchmarks.faults.workers import Desk

if TYPE_CHECKING:
    from benchmarks.faults.plan import Fault

DISK_BYTES = 16 << 20
LEAVE_BYTES = 2 << 20
"""What a full disk has left: nothing, this, or twice this."""
FREEZE_S = 2.2
"""After so long what was stopped for ever is killed: longer than any deadline of a sync."""
ASK_S = 8.0
ACT_S = 5.0
NUM_LATER = 8
"""So many syncs later, faulted ones among them, the trainer knows at the latest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchSettings:
    """What to run."""

    transport: str
    num_syncs: int
    seed: int
    first: int = 0
    seconds: float = math.inf
    """No further sync begins after so long."""
    only: tuple[str, ...] = ()
    """Kinds of faults; all if empty."""
    without: str = ""
    """A guard to switch off in the receiver."""
    keep: Path | None = None
    """Leave logs and store here."""


@dataclass(kw_only=True, slots=True)
class _Round:
    """A fault, and the syncs under it."""

    number: int
    fault: Fault
    pid: int | None = None
    """Of the process that has the trap."""
    syncs: list[SyncEntry] = field(default_factory=list)
    resume_at: float | None = None
    kill_at: float | None = None
    handled: bool = False


class Bench:
    """One run and its files."""

    def __init__(self, settings: BenchSettings) -> None:
        self.settings = settings
        self.tally = Tally(transport=settings.transport, seed=settings.seed, first=settings.first)
        self._root = Path(tempfile.mkdtemp(prefix="faults-", dir="/tmp"))
        self._desk = Desk(root=self._root)
        self._disk = SmallDisk(self._root / "disk", DISK_BYTES)
        (self._root / "without").write_text(settings.without)
        model.write_base(self._desk.base)
        self._crew = Crew(self._desk, settings.transport)
        self._account: Account | None = None
        self._weight_version = 0
        self._life = 0
        self._now = _Round(number=-1, fault=plan.NONE)

    def run(self, progress: Callable[[Tally], None] = lambda _: None) -> Tally:
        """All syncs, then the account."""
        began, settings, tally = time.monotonic(), self.settings, self.tally
        self._crew.repair()
        if pid_of(self._desk, "receiver") is None:
            raise RuntimeError("the receiver is not the bench's own: it has no probes")
        self._account = Account(self._desk, tally, tells=self._crew.site.tells)
        number = settings.first
        while tally.syncs < settings.num_syncs and time.monotonic() - began < settings.seconds:
            self._round(number, plan.fault(settings.seed, settings.transport, number, settings.only))
            number += 1
            tally.next = number
            progress(tally)
            if tally.troubles and settings.without:
                break
        self._round(number, plan.NONE)  # a disk that was full has room for all records now
        self._account.finish(life=self._crew.life)
        tally.deadline_s, tally.copy_s = self._crew.site.deadline_s, self._crew.copy_s
        tally.restarts = self._crew.restarts
        tally.took_s = time.monotonic() - began
        tally.judge()
        return tally

    def close(self) -> None:
        """End all processes and remove their files."""
        self._crew.close()
        if self._account is not None:
            self._account.close()
        if self.settings.keep is not None:
            sockets = shutil.ignore_patterns("s", "r")
            shutil.copytree(self._root, self.settings.keep, dirs_exist_ok=True, ignore=sockets)
        for version in (self._desk.store / "versions").glob("*"):
            version.chmod(0o755)
        self._disk.close()
        shutil.rmtree(self._root, ignore_errors=True)

    # --- one round --------------------------------------------------------------------------

    def _round(self, number: int, fault: Fault) -> None:
        account = self._account
        assert account is not None
        self._now = now = _Round(number=number, fault=fault)
        self._arm(account, fault)
        try:
            self._play(account, now)
        except TrainerHangs:
            self.tally.trouble(number, f"{fault.kind}: the trainer hangs")
        sprung = self._disarm(account, fault)
        if sprung:
            self._wait_for_action(now)
        self._crew.repair()
        self._ask([sync for sync in now.syncs if sync.told is None and not sync.died])
        self._settle()
        for sync in now.syncs:
            account.count(sync, sprung=sprung)
            account.close_entry(sync)
        account.look(number)

    def _play(self, account: Account, now: _Round) -> None:
        self._sync(now)
        self._ask_late(account, now.number)
        if now.fault.kind == "receiver freeze" and self._sprung_within(1.0):
            for _ in range(2):  # what a trainer sees of a receiver that does not come back
                self._sync(now)
        self._ask(now.syncs)
        self._settle()

    def _arm(self, account: Account, fault: Fault) -> None:
        if fault.trap is not None:
            self._now.pid = pid_of(self._desk, fault.role)
            self._desk.trap(fault.role).arm(fault.trap)
        match fault.kind:
            case "disk full":
                self._disk.fill(leave=self.tally.syncs % 3 * LEAVE_BYTES)
            case "budget full":
                account.catalogue.pretend_full(STORE["max_bytes"])
            case "trainer restarts":
                self._crew.restart_trainer()
            case "receiver is gone":
                kill(pid_of(self._desk, "receiver"))
            case "receiver restarts":
                kill(pid_of(self._desk, "receiver"))
                self._crew.site.ensure()

    def _disarm(self, account: Account, fault: Fault) -> bool:
        if fault.kind == "disk full":
            self._disk.free()
        if fault.kind == "budget full":
            account.catalogue.no_more_full()
        return self._desk.trap(fault.role).disarm() if fault.trap is not None else fault.kind != "none"

    def _sync(self, now: _Round) -> None:
        """Ask the trainer for the next sync and wait until it has let go of the training thread."""
        crew = self._crew
        if not crew.trainer_lives:
            return
        if crew.life != self._life:
            self._life, self._weight_version = crew.life, 0
        self._weight_version += 1
        sync = SyncEntry(
            number=now.number, life=self._life, weight_version=self._weight_version, fault=now.fault
        )
        sync.died = True  # unless it answers
        now.syncs.append(sync)
        answer = crew.request(Sync(weight_version=sync.weight_version), self._attend)
        if isinstance(answer, Held):
            sync.held, sync.died = answer, False

    def _ask(self, syncs: list[SyncEntry]) -> None:
        """What became of these, as far as the trainer knows."""
        if not syncs:
            return
        versions = tuple(sync.weight_version for sync in syncs)
        answer = self._crew.request(Ask(weight_versions=versions, timeout_s=ASK_S), self._attend)
        for sync in syncs:
            if isinstance(answer, Told):
                sync.told = answer.outcomes.get(sync.weight_version)
            else:
                sync.died = True

    def _ask_late(self, account: Account, number: int) -> None:
        """Whoever was left without an outcome has it after a later sync that went well."""
        late = [sync for sync in account.untold if sync.life == self._crew.life]
        account.untold = []
        self._ask(late)
        for sync in late:
            if sync.told is not None or sync.died:
                continue
            if number - sync.number > NUM_LATER:
                account.late(sync)
            else:
                account.untold.append(sync)

    def _attend(self) -> None:
        """Resume or kill what a trap has stopped, and look at the files of a receiver that died."""
        state, now = self._now, time.monotonic()
        trap, role, account = state.fault.trap, state.fault.role, self._account
        if trap is None or account is None or state.handled or not self._desk.trap(role).sprung:
            return
        pid = pid_of(self._desk, role)
        match trap.action:
            case "stop":
                state.resume_at = state.resume_at or now + trap.seconds
                state.handled = now >= state.resume_at and state_of(pid) == "T"
                if state.handled:
                    send(pid, signal.SIGCONT)
            case "freeze":
                state.kill_at = state.kill_at or now + FREEZE_S
                state.handled = now >= state.kill_at
                if state.handled:
                    if role == "trainer":
                        account.must_have_ended(state.syncs[-1], FREEZE_S)
                    kill(pid)
            case "kill" if not alive(state.pid):
                if role == "receiver":
                    account.look(state.number)
                state.handled = True
            case "kill":
                pass  # in a moment
            case _:
                state.handled = True

    def _settle(self) -> None:
        """Wait for what is on its way, as long as there is somebody to take it."""
        deadline = time.monotonic() + ASK_S
        while not self._crew.site.is_settled() and time.monotonic() < deadline:
            self._attend()
            if not alive(pid_of(self._desk, "receiver")):
                return
            time.sleep(LOOK_S)

    def _wait_for_action(self, now: _Round) -> None:
        """A process that has taken its trap may need a moment to act on it."""
        wanted = {"kill": "", "stop": "T", "freeze": "T"}.get(now.fault.trap.action if now.fault.trap else "")
        deadline = time.monotonic() + ACT_S
        while wanted is not None and not now.handled and time.monotonic() < deadline:
            if not alive(now.pid) or state_of(now.pid) == wanted:
                return
            time.sleep(LOOK_S)

    def _sprung_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._desk.trap("receiver").sprung:
                return True
            self._attend()
            time.sleep(LOOK_S)
        return False


def run(settings: BenchSettings, progress: Callable[[Tally], Any] = lambda _: None) -> Tally:
    """One run of the bench."""
    bench = Bench(settings)
    try:
        return bench.run(progress)
    finally:
        bench.close()
