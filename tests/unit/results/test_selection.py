"""Which jobs a selection holds."""

from __future__ import annotations

from typing import Any

import pytest

from live_eval.errors import ConfigError
from live_eval.results.selection import Selection, version_range

JOBS: list[dict[str, Any]] = [
    {"job_id": "v1/a", "dataset": "a", "status": "succeeded", "policy_version": 1},
    {"job_id": "v2/a", "dataset": "a", "status": "failed", "policy_version": 2},
    {"job_id": "v2/b", "dataset": "b", "status": "succeeded", "policy_version": 2},
    {"job_id": "c1/a", "dataset": "a", "status": "succeeded", "policy_version": None},
]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "v1/a v2/a v2/b c1/a"),
        ({"datasets": ("a",)}, "v1/a v2/a c1/a"),
        ({"statuses": ("failed", "dropped")}, "v2/a"),
        ({"first_version": 2}, "v2/a v2/b"),
        ({"last_version": 1}, "v1/a"),
        ({"first_version": 1, "last_version": 2, "datasets": ("b",)}, "v2/b"),
    ],
)
def test_jobs_that_fit_everything_stay_in_their_order(settings: dict[str, Any], expected: str) -> None:
    assert " ".join(job["job_id"] for job in Selection(**settings).of(JOBS)) == expected


def test_names_that_nobody_has_are_errors_and_not_empty_tables() -> None:
    with pytest.raises(ConfigError, match="no job is of dataset c; datasets of this run: a, b"):
        Selection(datasets=("c",)).of(JOBS)
    with pytest.raises(ConfigError, match="status done is none of waiting"):
        Selection(statuses=("done",))


@pytest.mark.parametrize(
    ("text", "expected"), [("7", (7, 7)), ("3:7", (3, 7)), ("3:", (3, None)), (":7", (None, 7))]
)
def test_ranges(text: str, expected: tuple[int | None, int | None]) -> None:
    assert version_range(text) == expected


@pytest.mark.parametrize("text", ["", ":", "a", "7:3", "-1", "1:2:3"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="versions"):
        version_range(text)
