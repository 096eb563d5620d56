"""`python -m slime_patch apply|check|diff|revert SLIME_DIR`.

Exit status: 0 done, 1 `check` found the checkout not supported, 2 wrong use or refused (nothing was changed),
130 Ctrl-C (nor then).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from live_eval.errors import ConfigError, LiveEvalError

if TYPE_CHECKING:
    from slime_patch.patching.checkout import Checkout
    from slime_patch.patching.replace import Change

COMMANDS = {
    "apply": "insert live-eval's hooks; twice is as once, and a checkout that does not fit is refused",
    "check": "say whether this slime is supported, what is missing, and what is applied; writes nothing",
    "diff": "show what apply would change, as a unified diff; writes nothing",
    "revert": "take the insertions out again, byte for byte; edits elsewhere in the files stay",
}


def add_parser(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Add the four commands to a command line."""
    for name, words in COMMANDS.items():
        parser = subparsers.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".")
        parser.add_argument("slime_dir", metavar="SLIME_DIR", help="a checkout of slime, where train.py lies")
        parser.set_defaults(run=globals()[f"run_{name}"])


def main(argv: Sequence[str]) -> int:
    """Run one command; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m slime_patch", description="Patch a checkout of slime.")
    add_parser(parser.add_subparsers(metavar="COMMAND", required=True))
    args = parser.parse_args(argv)
    try:
        return args.run(args)
    except LiveEvalError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # what was renamed is back already
        return 130


def run_apply(args: argparse.Namespace) -> int:
    """Insert what is missing."""
    _require_libcst()
    from slime_patch.patching.plan import changes_to_apply

    checkout = _open(args)
    _write(checkout, changes_to_apply(checkout), done="patched", nothing="everything is in place")
    return 0


def run_revert(args: argparse.Namespace) -> int:
    """Take the insertions out."""
    _require_libcst()
    from slime_patch.patching.plan import changes_to_revert

    checkout = _open(args)
    _write(checkout, changes_to_revert(checkout), done="restored", nothing="nothing is inserted")
    return 0


def run_diff(args: argparse.Namespace) -> int:
    """Print what apply would change."""
    _require_libcst()
    from slime_patch.patching.diff import unified
    from slime_patch.patching.plan import changes_to_apply

    sys.stdout.buffer.write(unified(changes_to_apply(_open(args))))
    sys.stdout.flush()
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Print what is there and what is missing; 1 if the checkout is not supported."""
    _require_libcst()
    from slime_patch.patching.plan import examine

    checkout = _open(args)
    examination = examine(checkout)
    print(f"slime in {checkout.root} ({checkout.describe()}): {examination.condition}")
    width = max(len(report.file) for report in examination.files)
    for report in examination.files:
        print(f"  {report.file:{width}}  {report.condition:11}  {', '.join(report.insertions)}")
    if examination.problems:
        print("what is missing or in the way:")
        for problem in examination.problems:
            print(f"  {problem}")
    return 1 if examination.problems else 0


def _open(args: argparse.Namespace) -> Checkout:
    from slime_patch.patching.checkout import Checkout

    return Checkout.open(args.slime_dir)


def _write(checkout: Checkout, changes: Mapping[str, Change], *, done: str, nothing: str) -> None:
    from slime_patch.patching.plan import carry_out

    carry_out(checkout, changes)
    for file in changes:
        print(f"{done} {checkout.root / file}")
    if not changes:
        print(f"{nothing} in {checkout.root}: no file was changed")


def _require_libcst() -> None:
    try:
        import libcst  # noqa: F401
    except ImportError as error:
        raise ConfigError("patching needs libcst: pip install 'live-eval[patch]'") from error
