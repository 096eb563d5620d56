"""From an answer to a recorded sample, one task an answer.

Owns the tasks that wait for rewards. Invariant: each answer is recorded as scored, errored or
aborted, unless its task is cancelled; then its draft, with the answer, stays for the recorder.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from live_eval.errors import RewardError
from live_eval.evaluation.rewards import RewardSample

if TYPE_CHECKING:
    from types import TracebackType

    from live_eval.evaluation.asking import Ask
    from live_eval.evaluation.datasets import EvalRow
    from live_eval.evaluation.recorder import Recorder
    from live_eval.evaluation.rewards import Grader
    from live_eval.evaluation.sample import Sample
    from live_eval.evaluation.source import Generation


class Grading:
    """The AnswerSink of a run: grades answers and records what comes of every sample.

    Used as `async with`; leaving it waits for all rewards, and a cancel there gives them up.
    """

    def __init__(self, grader: Grader, recorder: Recorder) -> None:
        self._grader = grader
        self._recorder = recorder
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.__aexit__(kind, error, trace)

    def answered(self, ask: Ask, generation: Generation) -> None:
        """Grade the answer, or record that it was aborted."""
        sample = self._filled(ask, generation)
        if generation.finish_reason == "abort":
            self._recorder.record(replace(sample, error="aborted by the engine"))
            return
        self._recorder.keep_draft(replace(sample, error="answered, but not graded before the job ended"))
        self._tasks.create_task(self._grade(ask.row, sample))

    def refused(self, ask: Ask, error: str, generation: Generation | None = None) -> None:
        """Record the error."""
        sample = self._filled(ask, generation)
        self._recorder.record(replace(sample, status="errored", error=error))

    async def _grade(self, row: EvalRow, sample: Sample) -> None:
        try:
            grade = await self._grader.grade(
                RewardSample(
                    dataset=sample.dataset,
                    row_id=sample.row_id,
                    sample=sample.sample,
                    prompt=sample.prompt,
                    response=sample.response or "",
                    label=sample.label,
                    finish_reason=sample.finish_reason,
                    num_tokens=sample.num_tokens,
                    fields=row.fields,
                    metadata=row.metadata,
                )
            )
        except RewardError as error:
            self._recorder.record(replace(sample, status="errored", error=str(error)))
        else:
            graded = replace(sample, status="scored", reward=grade.reward, rewards=grade.rewards)
            self._recorder.record(graded)

    def _filled(self, ask: Ask, generation: Generation | None) -> Sample:
        draft = replace(
            self._recorder.draft(ask.row.row_id, ask.sample), attempt=ask.attempt, request_id=ask.request_id
        )
        if generation is None:
            return draft
        return replace(
            draft,
            response=generation.text,
            finish_reason=generation.finish_reason,
            num_tokens=generation.num_tokens,
            engine=generation.engine,
            engine_label=generation.label,
        )
