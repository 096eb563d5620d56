"""`live-eval submit`, `live-eval jobs` and `live-eval cancel`: work of a running service."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from live_eval.commands.arguments import absolute_path, positive_int
from live_eval.commands.link import add_link_options, open_link, wait_for

if TYPE_CHECKING:
    from live_eval.commands.arguments import Subparsers

STATUSES = ("waiting", "running", "succeeded", "failed", "timed_out", "cancelled", "superseded", "dropped")


def add_parser(subparsers: Subparsers) -> None:
    """Add the three to the command line."""
    _add_submit(subparsers)
    _add_jobs(subparsers)
    _add_cancel(subparsers)


def _add_submit(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "submit",
        help="let a running service evaluate checkpoints",
        description="Hand checkpoints to a service. Prints the ids of the jobs that were made. With --wait:"
        " until all have ended, exit status 0 if all succeeded, else 1.",
    )
    parser.add_argument(
        "path", type=absolute_path, nargs="+", metavar="PATH", help="checkpoints, as the service sees them"
    )
    parser.add_argument(
        "--dataset", action="append", default=[], metavar="NAME", help="only on this; again for more (all)"
    )
    parser.add_argument(
        "--priority",
        type=int,
        default=0,
        metavar="P",
        help="-100 to 100; of the checkpoints that wait the highest runs first (default 0)",
    )
    parser.add_argument("--wait", action="store_true", help="wait until the jobs have ended")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_link_options(parser)
    parser.set_defaults(run=submit)


def _add_jobs(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "jobs", help="jobs of a service", description="Show a service's jobs, the newest first."
    )
    parser.add_argument(
        "--status",
        action="append",
        choices=STATUSES,
        default=[],
        metavar="STATUS",
        help=f"only in this state, again for more: {', '.join(STATUSES)}",
    )
    parser.add_argument("--dataset", metavar="NAME", help="only of this dataset")
    parser.add_argument("--limit", type=positive_int, default=50, metavar="N", help="at most so many (50)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_link_options(parser)
    parser.set_defaults(run=show)


def _add_cancel(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "cancel",
        help="cancel jobs of a service",
        description="Cancel jobs: waiting ones end at once, a running one within a second, with what it had"
        " measured kept apart.",
    )
    parser.add_argument("job", nargs="+", metavar="JOB", help="ids, for example c1/math")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_link_options(parser)
    parser.set_defaults(run=cancel)


def submit(args: argparse.Namespace) -> int:
    """Submit; with --wait 0 if all succeeded."""
    link = open_link(args)
    made = [
        {"path": str(path), "job_ids": link.submit(path, args.dataset, args.priority)} for path in args.path
    ]
    ids = [job_id for each in made for job_id in each["job_ids"]]
    if not args.wait:
        print(json.dumps(made, indent=2) if args.json else "\n".join(ids))
        return 0
    jobs = wait_for(link, ids)
    _print(jobs, len(jobs), as_json=args.json)
    return 0 if all(job["status"] == "succeeded" for job in jobs) else 1


def show(args: argparse.Namespace) -> int:
    """List jobs."""
    page = open_link(args).jobs(statuses=args.status, dataset=args.dataset, limit=args.limit)
    _print(page["items"], page["total"], as_json=args.json)
    return 0


def cancel(args: argparse.Namespace) -> int:
    """Cancel jobs."""
    link = open_link(args)
    for job_id in args.job:
        link.cancel(job_id)
        if not args.json:
            print(f"cancelled {job_id}")
    if args.json:
        print(json.dumps({"cancelled": args.job}))
    return 0


def _print(jobs: list[dict[str, Any]], total: int, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(jobs, indent=2, allow_nan=False))
        return
    from live_eval.results.tables import Column, make_console, make_table

    columns = (
        Column(title="job", value=lambda job: job["job_id"]),
        Column(title="target", value=lambda job: job["checkpoint_name"] or job["target"]),
        Column(title="status", value=lambda job: job["status"]),
        Column(title="score", value=lambda job: _score(job), right=True),
        Column(title="done", value=lambda job: f"{job['num_done']}/{job['num_expected']}", right=True),
        Column(title="priority", value=lambda job: job["priority"] or "", from_width=90, right=True),
        Column(title="reason", value=lambda job: job["reason"], from_width=70),
        Column(title="seconds", value=lambda job: _seconds(job), from_width=80, right=True),
    )
    console = make_console()
    console.print(make_table(columns, jobs, width=console.width) if jobs else "There are no jobs.")
    if total > len(jobs):
        console.print(f"{total - len(jobs)} older ones; --limit shows more")


def _score(job: dict[str, Any]) -> str:
    return "" if job["score"] is None else f"{job['score']:.3f}"


def _seconds(job: dict[str, Any]) -> str:
    return "" if job["duration_s"] is None else f"{job['duration_s']:.1f}"
