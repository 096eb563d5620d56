"""The command line: builds the parser from one light module a command, runs the chosen one.

Nothing heavy is imported here or for --help; a command imports what it needs when it runs.
Exit status: 0 done, 1 the command's own "no", 2 wrong use or a LiveEvalError, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys

from live_eval.commands import COMMANDS
from live_eval.errors import LiveEvalError
from live_eval.plain import plain


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *args: object) -> None:
        from importlib.metadata import version

        print(f"live-eval {version('live-eval')}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; a parsed namespace carries `run`, a function from it to the exit status."""
    parser = argparse.ArgumentParser(
        prog="live-eval", description="Evaluate RL policies in the background, every score by policy version."
    )
    parser.add_argument(
        "--version", action=_ShowVersion, nargs=0, dest=argparse.SUPPRESS, help="print the version and exit"
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Entry point of `live-eval`; returns the exit status."""
    args = build_parser().parse_args(argv)
    try:
        return args.run(args)
    except LiveEvalError as error:
        print(f"error: {plain(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except (
        BrokenPipeError
    ):  # the reader (head, less) has seen enough; keep the interpreter's last flush silent
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
