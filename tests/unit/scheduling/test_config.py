from __future__ import annotations

from typing import Any

import pytest

from live_eval.errors import ConfigError
from live_eval.reasons import JobStatus
from live_eval.scheduling.config import SchedulerConfig
from live_eval.scheduling.jobs import Job


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_update": "stop"}, "on_update is 'stop'; use one of finish, cancel, queue"),
        ({"datasets": ()}, "name at least one eval set"),
        ({"datasets": ("a", "a")}, "a name twice"),
        ({"interval": 0}, "interval is 0"),
        ({"queue_size": 0}, "queue_size is 0"),
        ({"max_consecutive_cancels": 0}, "max_consecutive_cancels is 0"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"job_timeout_s": 0.0}, "job_timeout_s is 0"),
        ({"job_timeout_s": float("nan")}, "job_timeout_s is nan"),
        ({"drain_timeout_s": -1.0}, "drain_timeout_s is -1"),
        ({"abort_grace_s": 0.0}, "abort_grace_s is 0"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SchedulerConfig(**{"datasets": ("a",), **settings})


@pytest.mark.parametrize("status", [status for status in JobStatus if status.terminal])
def test_a_job_that_ended_never_changes_again(status: JobStatus) -> None:
    for following in JobStatus:
        job = Job(job_id="v1/a", dataset="a", status=status)
        with pytest.raises(RuntimeError, match="cannot go from"):
            job.move(following)


@pytest.mark.parametrize("status", [JobStatus.SUPERSEDED, JobStatus.DROPPED])
def test_a_running_job_is_neither_superseded_nor_dropped(status: JobStatus) -> None:
    job = Job(job_id="v1/a", dataset="a", status=JobStatus.RUNNING)
    with pytest.raises(RuntimeError, match="cannot go from running"):
        job.move(status)


def test_a_waiting_job_cannot_succeed() -> None:
    with pytest.raises(RuntimeError, match="from waiting to succeeded"):
        Job(job_id="v1/a", dataset="a").move(JobStatus.SUCCEEDED)
