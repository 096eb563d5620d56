"""What a run of the bench has counted, and whether it may be so."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

STEPS = (
    "begin",
    "hand_over",
    "bucket",
    "payload",
    "filled",
    "source_done",
    "commit",
    "seal",
    "rename",
    "record",
    "answer",
)
WAKE_S = 0.02
"""What waking a thread up may cost beside what the machine gave to others: Python's switch intervals."""


@dataclass(kw_only=True)
class Tally:
    """Counts of one run; add to it freely."""

    transport: str
    seed: int
    first: int = 0
    next: int = 0
    """Number of the sync that would have been the next."""
    deadline_s: float = 0.0
    copy_s: float = 0.0
    syncs: int = 0
    unfaulted: int = 0
    unfaulted_sealed: int = 0
    sealed: int = 0
    never_told: int = 0
    """Syncs of a trainer that died before anybody heard of them."""
    discarded: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    sealed_kinds: Counter[str] = field(default_factory=Counter)
    not_sprung: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    """torn, mixed, mislabelled, by the checker."""
    checked: int = 0
    """Sealed versions whose every byte was read."""
    trainer_errors: int = 0
    """Exceptions that came out of a publisher."""
    held_s: float = 0.0
    """The longest that a sync held the training thread."""
    held_ours_s: float = 0.0
    """The same without the time for which the machine ran others though the thread was ready."""
    restarts: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0
    troubles: list[str] = field(default_factory=list)
    """Each thing that must not be, with the number that replays it."""

    def trouble(self, number: int, what: str) -> None:
        """Something that must not be."""
        self.troubles.append(f"sync {number}: {what}")

    @property
    def hold_bound_s(self) -> float:
        """What a sync may hold the training thread for, with ray and disk."""
        return self.deadline_s + self.copy_s + WAKE_S

    def judge(self) -> None:
        """The rules that hold for a run as a whole."""
        if self.unfaulted_sealed != self.unfaulted:
            self.troubles.append(
                f"{self.unfaulted - self.unfaulted_sealed} syncs without a fault were not sealed"
            )
        if self.sealed + sum(self.discarded.values()) + self.never_told != self.syncs:
            self.troubles.append("sealed, discarded and never told are not all syncs")
        if self.checked != self.sealed:
            self.troubles.append(f"{self.sealed} were sealed, {self.checked} whole ones were read")
        if self.transport != "nccl":
            if self.trainer_errors:
                self.troubles.append(f"{self.trainer_errors} exceptions in the trainer")
            if self.held_ours_s > self.hold_bound_s:
                bound = f"the deadline and one copy are {self.hold_bound_s:.3f} s"
                self.troubles.append(f"held for {self.held_ours_s:.3f} s, {bound}")

    def figures(self) -> list[dict[str, Any]]:
        """The counts as the benchmarks write them."""
        name = self.transport
        rows: list[tuple[str, float, float | None, str]] = [
            ("syncs", self.syncs, None, ""),
            ("sealed", self.sealed, None, ""),
            ("share sealed", round(self.sealed / max(self.syncs, 1), 4), 0.3, ""),
            ("unfaulted not sealed", self.unfaulted - self.unfaulted_sealed, 0, ""),
            ("torn", self.findings["torn"], 0, ""),
            ("mixed", self.findings["mixed"], 0, ""),
            ("mislabelled", self.findings["mislabelled"], 0, ""),
            ("exceptions in the trainer", self.trainer_errors, None if name == "nccl" else 0, ""),
            ("largest hold", round(self.held_s, 4), None, "s"),
            (
                "largest hold without the machine's own delay",
                round(self.held_ours_s, 4),
                None if name == "nccl" else round(self.hold_bound_s, 4),
                "s",
            ),
            ("fewest hits of a step", min(self.steps[step] for step in STEPS), 20, ""),
            ("faults whose step never came", self.not_sprung, None, ""),
            ("troubles", len(self.troubles), 0, ""),
        ]
        rows += [
            (f"discarded: {reason}", number, None, "") for reason, number in sorted(self.discarded.items())
        ]
        rows += [(f"hits of {step}", self.steps[step], None, "") for step in STEPS]
        return [
            {
                "figure": f"faults, {name}: {what}",
                "value": value,
                "goal": goal,
                "peer": f"seed {self.seed}",
                "unit": unit,
            }
            for what, value, goal, unit in rows
        ]
