"""The counts of a run as tables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks.faults.tally import STEPS

if TYPE_CHECKING:
    from benchmarks.faults.tally import Tally

NUM_TROUBLES_SHOWN = 20


def show(tally: Tally) -> None:
    """Print what was counted."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    console.print(_faults(tally))
    console.print(_counts(tally))
    for trouble in tally.troubles[:NUM_TROUBLES_SHOWN]:
        console.print(f"TROUBLE {trouble}", style="red", markup=False)
    replay = f"python -m benchmarks.faults --transport {tally.transport} --seed {tally.seed}"
    replay += f" --first {tally.first} --syncs {tally.syncs}"
    console.print(f"{len(tally.troubles)} troubles. Replay: {replay}", soft_wrap=True)
    console.print(f"Go on with --first {tally.next}.")


def _faults(tally: Tally) -> Table:
    table = Table(title=f"What befell the syncs, transport {tally.transport}")
    for heading in ("fault", "syncs", "sealed"):
        table.add_column(heading, justify="left" if heading == "fault" else "right")
    for kind, number in sorted(tally.kinds.items()):
        table.add_row(kind, str(number), str(tally.sealed_kinds[kind]))
    return table


def _counts(tally: Tally) -> Table:
    table = Table(title="What became of them", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    share = tally.sealed / max(tally.syncs, 1)
    lines = {
        "syncs": f"{tally.syncs} in {tally.took_s:.0f} s; {tally.unfaulted} without a fault, "
        f"{tally.unfaulted_sealed} of these sealed",
        "sealed": f"{tally.sealed} ({share:.0%}), {tally.checked} read byte by byte",
        "torn / mixed / mislabelled": " / ".join(
            str(tally.findings[kind]) for kind in ("torn", "mixed", "mislabelled")
        ),
        "discarded": ", ".join(f"{reason} {n}" for reason, n in tally.discarded.most_common()) or "0",
        "never told": f"{tally.never_told} (the trainer died before anybody heard of them)",
        "hits of a step": ", ".join(f"{step} {tally.steps[step]}" for step in STEPS),
        "faults whose step never came": str(tally.not_sprung),
        "exceptions in the trainer": str(tally.trainer_errors),
        "largest hold": f"{tally.held_s:.3f} s; {tally.held_ours_s:.3f} s without the machine's own delay; "
        f"deadline {tally.deadline_s:g} s, one copy {tally.copy_s * 1000:.1f} ms",
        "started again": ", ".join(f"{role} {n}" for role, n in sorted(tally.restarts.items())),
    }
    for name, text in lines.items():
        table.add_row(name, text)
    return table
