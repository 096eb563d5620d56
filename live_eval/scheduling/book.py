"""The book of all evaluations: which were made, which jobs are open, what is pinned.

Owns the pairing of NewJob with EndJob and of Pin with Unpin. Knows no order and no policy.
Invariant: a version is pinned by its evaluation from the moment it is made until the evaluation is
closed, and it is closed only after its last job ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from live_eval.scheduling.actions import Action, NewJob, Pin, Trigger, Unpin
from live_eval.scheduling.due import Due
from live_eval.scheduling.jobs import Evaluation, Job
from live_eval.scheduling.running import end_job
from live_eval.targets import Target, job_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from live_eval.reasons import EndReason, JobStatus


class Book:
    """Evaluations by key, open jobs by id, and pins."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Evaluation, Job]] = {}
        """Jobs of evaluations that are not closed."""
        self._made: set[str] = set()
        self._pins: set[tuple[int, str]] = set()

    @property
    def pins(self) -> frozenset[tuple[int, str]]:
        """(policy version, owner) of all pins that are held."""
        return frozenset(self._pins)

    def has(self, key: str) -> bool:
        """Whether the target with this key ever had an evaluation."""
        return key in self._made

    def find(self, name: str) -> tuple[Evaluation, Job] | None:
        """The job with this id and its evaluation, unless that is closed or was never made."""
        return self._open.get(name)

    def make(
        self,
        target: Target,
        due: Due,
        datasets: Sequence[str],
        actions: list[Action],
        *,
        priority: int = 0,
    ) -> Evaluation:
        """Make the evaluation of `target` with a job a dataset, and pin its version."""
        evaluation = Evaluation(target=target, priority=priority)
        self._add_jobs(evaluation, due, datasets, actions)
        self.remember(evaluation)
        self.open(evaluation, actions)
        return evaluation

    def complete(self, evaluation: Evaluation, datasets: Sequence[str], actions: list[Action]) -> None:
        """Make the jobs that an open evaluation lacks for some of `datasets`."""
        present = {job.dataset for job in evaluation.jobs}
        missing = [name for name in datasets if name not in present]
        self._add_jobs(evaluation, Due(trigger=Trigger.RESTORED), missing, actions)

    def remember(self, evaluation: Evaluation) -> None:
        """The target has had its evaluation."""
        self._made.add(evaluation.key)

    def open(self, evaluation: Evaluation, actions: list[Action]) -> None:
        """Take in an evaluation that is not over, and pin its version."""
        for job in evaluation.jobs:
            self._open[job.job_id] = (evaluation, job)
        if evaluation.policy_version is not None:
            self.pin(evaluation.policy_version, evaluation.key, actions)

    def _add_jobs(
        self, evaluation: Evaluation, due: Due, datasets: Sequence[str], actions: list[Action]
    ) -> None:
        for dataset in datasets:
            job = Job(job_id=job_id(evaluation.target, dataset), dataset=dataset)
            evaluation.jobs.append(job)
            self._open[job.job_id] = (evaluation, job)
            actions.append(
                NewJob(
                    job_id=job.job_id,
                    evaluation=evaluation.key,
                    target=evaluation.target,
                    dataset=dataset,
                    trigger=due.trigger,
                    due_rollout=due.due_rollout,
                )
            )

    def end_unfinished(
        self, evaluation: Evaluation, status: JobStatus, reason: EndReason, actions: list[Action]
    ) -> None:
        """End what is left of an evaluation that does not run, and close it."""
        actions += [end_job(evaluation, job, status, reason) for job in evaluation.unfinished]
        self.close(evaluation, actions)

    def close(self, evaluation: Evaluation, actions: list[Action]) -> None:
        """All jobs have ended and the engines are free of it: let its version go."""
        for job in evaluation.jobs:
            self._open.pop(job.job_id, None)
        if evaluation.policy_version is not None:
            self.unpin(evaluation.policy_version, evaluation.key, actions)

    def pin(self, version: int, owner: str, actions: list[Action]) -> None:
        """Hold `version` for `owner`, once."""
        if (version, owner) not in self._pins:
            self._pins.add((version, owner))
            actions.append(Pin(policy_version=version, owner=owner))

    def unpin(self, version: int, owner: str, actions: list[Action]) -> None:
        """Give the pin back if it is held."""
        if (version, owner) in self._pins:
            self._pins.remove((version, owner))
            actions.append(Unpin(policy_version=version, owner=owner))
