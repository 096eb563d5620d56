"""`live-eval doctor`: what is installed, what can work here, and what to do about what cannot."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from live_eval.commands.arguments import Subparsers
    from live_eval.commands.diagnosis import Diagnosis, Finding


def add_parser(subparsers: Subparsers) -> None:
    """Add `doctor` to the command line."""
    parser = subparsers.add_parser(
        "doctor",
        help="what is installed and what can work here",
        description="Say what is installed, which engine and which transports can work on this machine, and"
        " what to do about what cannot. Exit status 0 if the main job can run, else 1.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the diagnosis; 0 if the main job can run here, else 1."""
    from live_eval.commands.diagnosis import diagnose

    diagnosis = diagnose()
    if args.json:
        print_json(diagnosis)
    elif find_spec("rich") is None:
        print_plain(diagnosis)
    else:
        from rich.console import Console

        print_tables(diagnosis, Console())
    return 0 if diagnosis.ok else 1


def print_json(diagnosis: Diagnosis) -> None:
    """The whole diagnosis as one JSON object."""
    import json
    from dataclasses import asdict

    print(json.dumps(asdict(diagnosis), indent=2))


def print_plain(diagnosis: Diagnosis) -> None:
    """The same without rich, one line a fact: a missing package is what doctor is asked about."""
    for name, words in diagnosis.system.items():
        print(f"{name}: {words}")
    for package in diagnosis.packages:
        print(f"{package.name}: {package.version or 'not installed'} ({package.purpose})")
    for group, findings in groups(diagnosis):
        for finding in findings:
            label = f"{group}: {finding.name}" if group else finding.name
            advice = f"; {finding.fix}" if finding.fix else ""
            print(f"{label}: {'yes' if finding.ok else 'no'} ({finding.detail}){advice}")
    print("The main job can run here" if diagnosis.ok else "The main job cannot run here")


def print_tables(diagnosis: Diagnosis, console: Console) -> None:
    """Machine, packages, what works, and one closing line."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    machine = Table(title="This machine", box=SIMPLE_HEAD, title_justify="left", show_header=False)
    for name, words in diagnosis.system.items():
        machine.add_row(name, escape(words))
    packages = Table("package", "version", "for", title="Packages", box=SIMPLE_HEAD, title_justify="left")
    for package in diagnosis.packages:
        packages.add_row(package.name, package.version or "[yellow]not installed[/]", package.purpose)
    verdicts = Table("part", "works", "here", title="What can work", box=SIMPLE_HEAD, title_justify="left")
    advice: list[str] = []
    for group, findings in groups(diagnosis):
        for finding in findings:
            label = f"{group}: {finding.name}" if group else finding.name
            mark = "[green]yes[/]" if finding.ok else "[red]no[/]"
            verdicts.add_row(label, mark, escape(finding.detail))
            if finding.fix:
                advice.append(f"  [bold]{label}[/]: {escape(finding.fix)}")
    for table in (machine, packages, verdicts):
        console.print(table)
    if advice:
        console.print("\n".join(["What to do", *advice, ""]), soft_wrap=True)
    console.print(
        "[green]The main job can run here[/]: make demo, or live-eval demo --out DIR"
        if diagnosis.ok
        else "[red]The main job cannot run here[/]: see the rows that say no"
    )


def groups(diagnosis: Diagnosis) -> list[tuple[str, list[Finding]]]:
    """The findings under the words that the table shows before them."""
    return [
        ("", diagnosis.basics),
        ("engine", diagnosis.engines),
        ("transport", diagnosis.transports),
        ("sink", diagnosis.sinks),
    ]
