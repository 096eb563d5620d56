"""A made-up run for the page: versions, jobs, samples and spans that fit each other.

Every item is checked against the shapes of the API (live_eval.http.models), so that it cannot say what the
real service would not.
"""

from __future__ import annotations

import math
from typing import Any

from live_eval.http import models
from live_eval.http.figures import metric_items

BEGAN = 1_700_000_000.0
DIGEST = "9f3c51e2a7b84d06b1c2d3e4f5061728"


def interval(score: float, num: int) -> dict[str, Any]:
    """Wilson's, as a service might say it."""
    z = 1.96
    middle = (score + z * z / (2 * num)) / (1 + z * z / num)
    half = z / (1 + z * z / num) * math.sqrt(score * (1 - score) / num + z * z / (4 * num * num))
    return {
        "low": max(0.0, middle - half),
        "high": min(1.0, middle + half),
        "level": 0.95,
        "method": "wilson",
    }


class World:
    """What the stand-in knows; `began` is when its run began, in epoch seconds."""

    def __init__(
        self,
        *,
        began: float = BEGAN,
        datasets: tuple[str, ...] = ("rev", "sort"),
        on_update: str = "finish",
        num_expected: int = 64,
        samples_a_row: int = 1,
    ) -> None:
        self.samples_a_row = samples_a_row
        self.began = began
        self.datasets = datasets
        self.on_update = on_update
        self.num_expected = num_expected
        self.now = began
        self.roots: list[str] = ["/ckpt"]
        self.state = "serving"
        self.versions: list[dict[str, Any]] = []
        self.by_number: dict[int, dict[str, Any]] = {}
        self.stable: dict[str, Any] | None = None
        self.jobs: dict[str, dict[str, Any]] = {}
        self.results: list[dict[str, Any]] = []
        self.samples: dict[str, list[dict[str, Any]]] = {}
        self.syncs: list[dict[str, Any]] = []
        self.spans: dict[str, list[dict[str, Any]]] = {"eval-0": []}
        self.engines: dict[str, dict[str, Any]] = {"eval-0": self._engine("eval-0")}

    # --- what happens ---------------------------------------------------------------------

    def sync(
        self, number: int, at: float, *, seconds: float = 1.2, reason: str = "", detail: str = ""
    ) -> dict[str, Any]:
        """A sync that was sealed, or discarded for a reason."""
        sealed = not reason
        if sealed and self.stable is not None:
            self.stable["is_stable"] = False
        version = {
            "policy_version": number,
            "incarnation": 1,
            "weight_version": number,
            "rollout_id": number - 2 if number > 1 else None,
            "train_step": 34 * (number - 1),
            "state": "sealed" if sealed else "discarded",
            "reason": reason,
            "detail": detail,
            "num_tensors": 27,
            "num_bytes": 1_511_936,
            "digest": f"{number:04x}{DIGEST}"[:32] if sealed else "",
            "same_as": None,
            "began_at": at,
            "sealed_at": at + seconds if sealed else None,
            "ended_at": None if sealed else at + seconds,
            "held_s": 0.7 * seconds if sealed else None,
            "is_stable": sealed,
            "pins": [],
            "jobs": [],
            "scores": {},
        }
        self.versions.append(models.Version(**version).model_dump())
        self.by_number[number] = self.versions[-1]
        if sealed:
            self.stable = self.versions[-1]
        self.syncs.append(
            {
                "policy_version": number,
                "weight_version": number,
                "begin": at,
                "end": at + seconds,
                "outcome": "sealed" if sealed else "discarded",
                "reason": reason,
            }
        )
        return self.versions[-1]

    def job(
        self, target: str, dataset: str, at: float, *, reason: str = "every", path: str = ""
    ) -> dict[str, Any]:
        """A job that waits."""
        version = int(target[1:]) if target.startswith("v") else None
        job = {
            "job_id": f"{target}/{dataset}",
            "dataset": dataset,
            "kind": "live" if version else "checkpoint",
            "target": target,
            "policy_version": version,
            "checkpoint": path or None,
            "checkpoint_name": path.rsplit("/", 1)[-1] or None,
            "train_step": 34 * (version - 1) if version else 200,
            "rollout_id": version - 2 if version and version > 1 else None,
            "status": "waiting",
            "reason": reason,
            "detail": "",
            "priority": 0,
            "protected": False,
            "attempt": 1,
            "requested_at": at,
            "started_at": None,
            "finished_at": None,
            "duration_s": None,
            "num_done": 0,
            "num_expected": self.num_expected,
            "estimate": None,
            "score": None,
            "interval": None,
        }
        self.jobs[job["job_id"]] = models.Job(**job).model_dump()
        if version:
            self.by_number[version]["jobs"].append(job["job_id"])
        return self.jobs[job["job_id"]]

    def start(self, job_id: str, at: float) -> dict[str, Any]:
        """The job runs."""
        job = self.jobs[job_id]
        job.update(status="running", reason="", started_at=at)
        return job

    def progress(self, job_id: str, num_done: int, score: float | None) -> dict[str, Any]:
        """Some samples are done; the event's data."""
        job = self.jobs[job_id]
        estimate = None
        if score is not None and num_done:
            between = interval(score, num_done)
            estimate = {
                "score": score,
                "low": between["low"],
                "high": between["high"],
                "num_scored": num_done,
            }
        job.update(num_done=num_done, estimate=estimate)
        return {key: job[key] for key in ("job_id", "num_done", "num_expected", "estimate")}

    def end(
        self,
        job_id: str,
        at: float,
        *,
        status: str = "succeeded",
        reason: str = "completed",
        score: float | None = None,
        detail: str = "",
        partial: float | None = None,
        num_scored: int | None = None,
    ) -> dict[str, Any]:
        """How the job ended: an item of /results."""
        job, done = self.jobs[job_id], status == "succeeded"
        between = interval(score, self.num_expected) if score is not None else None
        began = job["started_at"]
        job.update(
            status=status,
            reason=reason,
            detail=detail,
            finished_at=at,
            score=score,
            interval=between,
            estimate=None,
            duration_s=None if began is None else at - began,
            num_done=self.num_expected if done else job["num_done"],
        )
        measured = {} if partial is None else {"score": {"value": partial, "interval": None}}
        metrics = (
            {}
            if score is None
            else {
                "score": {"value": score, "interval": between},
                "pass@16": {"value": score, "interval": None},
                "pass@2": {"value": score, "interval": None},
                "truncated": {"value": 0.02, "interval": None},
                "response_tokens": {"value": 6.4, "interval": None},
                **self._to_previous(job, score),
            }
        )
        version = job["policy_version"]
        result = {
            **{
                key: job[key]
                for key in (
                    "job_id",
                    "dataset",
                    "kind",
                    "target",
                    "status",
                    "reason",
                    "detail",
                    "policy_version",
                    "checkpoint",
                    "train_step",
                    "rollout_id",
                    "score",
                    "interval",
                    "attempt",
                    "requested_at",
                    "started_at",
                    "finished_at",
                    "duration_s",
                )
            },
            "result_id": f"run/{job_id}",
            "weight_digest": f"{version:04x}{DIGEST}"[:32] if version else "",
            "metrics": metrics,
            "partial": measured,
            "n_expected": self.num_expected,
            "n_scored": num_scored or (self.num_expected if done else job["num_done"]),
            "n_errored": 0,
            "n_aborted": 0 if done else self.num_expected - job["num_done"],
            "engine_versions": [] if began is None else [job["target"].removeprefix("v")],
            "has_samples": job_id in self.samples or done,
        }
        self.results.append(models.Result(**result).model_dump())
        if done and version:
            self.by_number[version]["scores"][job["dataset"]] = score
        return self.results[-1]

    def _to_previous(self, job: dict[str, Any], score: float) -> dict[str, Any]:
        """The difference to the version before, in the API's own form."""
        scored = (each for each in reversed(self.results) if each["dataset"] == job["dataset"])
        before = next((each for each in scored if each["score"] is not None), None)
        if before is None or job["policy_version"] is None:
            return {}
        difference = score - before["score"]
        return metric_items(
            {
                "vs_previous/diff": difference,
                "vs_previous/low": difference - 0.05,
                "vs_previous/high": difference + 0.05,
                "vs_previous/version": float(before["policy_version"]),
            }
        )

    def span(self, kind: str, target: str | None, begin: float, end: float | None, **more: str) -> None:
        """What engine eval-0 was at."""
        span = {
            "kind": kind,
            "target": target,
            "begin": begin,
            "end": end,
            "outcome": "",
            "detail": "",
            **more,
        }
        self.spans["eval-0"].append(span)

    def sample(
        self,
        job_id: str,
        row: int,
        number: int = 0,
        *,
        prompt: str,
        label: str,
        response: str | None,
        reward: float | None,
    ) -> None:
        """One more sample of a job."""
        sample = {
            "row_id": str(row),
            "sample": number,
            "status": "errored" if reward is None else "scored",
            "prompt": prompt,
            "label": label,
            "response": response,
            "reward": reward,
            "rewards": {},
            "finish_reason": "stop",
            "error": "" if reward is not None else "the reward function raised",
            "num_tokens": 6,
            "engine": "eval-0",
            "engine_label": job_id.split("/")[0].removeprefix("v"),
            "attempt": 1,
            "cut": [],
        }
        self.samples.setdefault(job_id, []).append(models.Sample(**sample).model_dump())

    def _engine(self, name: str) -> dict[str, Any]:
        return models.EngineFacts(
            name=name,
            state="ready",
            since=self.began,
            detail="",
            target=None,
            url="http://127.0.0.1:30000",
            device="cpu",
            launched=True,
            num_restarts=0,
        ).model_dump()
