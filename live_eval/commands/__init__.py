"""The commands of `live-eval`, one module each: `add_parser(subparsers)` and `run(args) -> int`.

The modules are light: what a command needs is imported inside its `run`.
"""

from __future__ import annotations

from live_eval.commands import demo, doctor, evaluate, jobs, results, serve, versions, view

COMMANDS = (demo, evaluate, serve, jobs, results, versions, view, doctor)
