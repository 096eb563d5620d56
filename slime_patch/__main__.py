"""`python -m slime_patch COMMAND`: run a script of slime with live eval, or patch a checkout of slime."""

from __future__ import annotations

import sys

from slime_patch import run

PATCHING = ("apply", "check", "diff", "revert")

USAGE = """usage: python -m slime_patch run SCRIPT [slime's arguments]
       python -m slime_patch {apply,check,diff,revert} SLIME_DIR

Evaluate a slime run in the background: run one of slime's scripts, unedited, with live eval, or write the
same hooks into a checkout of slime.

commands:
  run     run a script with live eval; nothing of slime is edited (docs/slime.md)
  check   say whether this slime is supported and what is applied; writes nothing
  diff    show what apply would change; writes nothing
  apply   insert the hooks, for `python train.py ... --eval-mode latest-synced` (docs/slime_patch.md)
  revert  take the insertions out again, byte for byte

example, on a machine where slime is installed:
  python -m slime_patch.run train_async.py ...slime's arguments... --eval-mode latest-synced --eval-num-gpus 1
"""


def main(arguments: list[str]) -> int:
    """Dispatch; the exit status."""
    command = arguments[0] if arguments else ""
    if command == "run":
        return run.main(arguments[1:])
    if command in PATCHING:
        from slime_patch.patching import cli

        return cli.main(arguments)
    asked = command in ("-h", "--help")
    print(USAGE, end="", file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
