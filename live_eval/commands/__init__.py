"""The commands of `live-eval`, one module each: `add_parser(subparsers)` and `run(args) -> int`.

The modules are light: what a command needs is imported inside its `run`.
"""

from __future__ import annotations

from live_eval.commands import demo, doctor, results, versions, view

COMMANDS = (demo, results, versions, view, doctor)
