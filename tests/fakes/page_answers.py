"""What a World says when it is asked: the answers of the API that are made of more than one item."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from live_eval.http import models

if TYPE_CHECKING:
    from fakes.page_world import World


def status(world: World) -> dict[str, Any]:
    """/status."""
    stable = world.stable
    scored = max(
        (each["policy_version"] or 0 for each in world.results if each["score"] is not None), default=0
    )
    sealed = [each for each in world.versions if each["sealed_at"] is not None]
    behind = [each for each in sealed if each["policy_version"] > scored] if scored else []
    totals: dict[str, int] = {}
    for job in world.jobs.values():
        totals[job["status"]] = totals.get(job["status"], 0) + 1
    discarded: dict[str, int] = {}
    for each in world.versions:
        if each["state"] == "discarded":
            discarded[each["reason"]] = discarded.get(each["reason"], 0) + 1
    by_status = {
        name: [j["job_id"] for j in world.jobs.values() if j["status"] == name]
        for name in ("running", "waiting")
    }
    status = {
        "run_id": "demo-5f21c9d0",
        "live_eval_version": "0.1.0",
        "started_at": world.began,
        "now": world.now,
        "state": world.state,
        "stable_version": stable and stable["policy_version"],
        "stable_at": stable and stable["sealed_at"],
        "stable_age_s": stable and world.now - stable["sealed_at"],
        "scored_version": scored or None,
        "lag_versions": len(behind) if scored else None,
        "lag_s": 8.5 * len(behind) if scored else None,
        **by_status,
        "queue_depth": len(by_status["waiting"]),
        "totals": totals,
        "discarded": discarded,
        "on_update": world.on_update,
        "interval": None,
        "datasets": list(world.datasets),
        "engines": {name: each["state"] for name, each in world.engines.items()},
        "store": {
            "used_bytes": 1_511_936 * len(sealed),
            "max_bytes": 1 << 30,
            "num_sealed": len(sealed),
            "num_pins": 2,
        },
        "held_s": 0.84 * len(sealed) if sealed else None,
        "sinks": {"jsonl": 0},
        "checkpoint_roots": world.roots,
        "needs_token": False,
        "last_event_id": "life-0",
    }
    return models.Status(**status).model_dump()


def lane(world: World, since: float, until: float | None) -> dict[str, Any]:
    """/lane."""
    jobs = [
        {
            "job_id": job["job_id"],
            "target": job["target"],
            "dataset": job["dataset"],
            "attempt": job["attempt"],
            "requested": job["requested_at"],
            "begin": job["started_at"],
            "end": job["finished_at"],
            "status": job["status"],
            "reason": job["reason"],
        }
        for job in world.jobs.values()
    ]
    lane = {
        "now": world.now,
        "since": since,
        "until": until or world.now,
        "cut": False,
        "syncs": [each for each in world.syncs if (each["end"] or world.now) >= since][-2000:],
        "engines": [{"name": name, "spans": spans[-2000:]} for name, spans in world.spans.items()],
        "jobs": [job for job in jobs if (job["end"] or world.now) >= since][-2000:],
    }
    return models.Lane(**lane).model_dump()


def datasets(world: World) -> list[dict[str, Any]]:
    """/datasets."""
    return [
        models.Dataset(
            name=name,
            num_rows=world.num_expected // world.samples_a_row,
            num_expected=world.num_expected,
            n=world.samples_a_row,
            file_sha256="ab" * 32,
            since=world.began,
            settings={"pass_threshold": 1.0},
        ).model_dump()
        for name in world.datasets
    ]


def compare(world: World, left: str, right: str) -> dict[str, Any]:
    """/compare, all of it on one page."""
    rows = {each["row_id"]: each for each in world.samples.get(right, [])}
    items: list[dict[str, Any]] = []
    for one in world.samples.get(left, []):
        other = rows.get(one["row_id"])
        change = change_of(one["reward"], other["reward"] if other else None)
        items.append(
            {
                "row_id": one["row_id"],
                "sample": 0,
                "prompt": one["prompt"],
                "label": one["label"],
                "change": change,
                "left": one,
                "right": other,
            }
        )
    counts = {
        name: sum(item["change"] == name for item in items)
        for name in ("better", "worse", "same", "unpaired")
    }
    num = len(items) - counts["unpaired"]
    difference = (counts["better"] - counts["worse"]) / num if num else None
    between = (
        None
        if difference is None
        else {"low": difference - 0.1, "high": difference + 0.1, "level": 0.95, "method": "bonett_price"}
    )
    return {
        "left": left,
        "right": right,
        "dataset": left.split("/")[1],
        "items": items,
        "summary": {"paired": num, **counts, "difference": difference, "interval": between},
    }


def change_of(before: float | None, after: float | None) -> str:
    """What became of one sample."""
    if before is None or after is None:
        return "unpaired"
    return "better" if after > before else "worse" if after < before else "same"
