"""Asking a source for every sample of a job, through engines that die.

Owns what is still to be asked. Invariant: each ask is handed on exactly once, as answered or
as refused, unless the run is stopped first. Knows nothing of rewards or files.

Work goes in rounds: calls are made, a few at a time, until nothing is left or an engine is lost.
Then no call is made until all calls in flight are over and the engines are pinned again, so that
nothing is ever loaded under a request of this job.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from live_eval.errors import (
    CorruptVersion,
    EngineError,
    LoadFailed,
    NoSuchVersion,
    PinMismatch,
    StoreError,
)
from live_eval.evaluation.source import GenRequest
from live_eval.reasons import EndReason

if TYPE_CHECKING:
    from live_eval.evaluation.datasets import EvalRow
    from live_eval.evaluation.ending import StopSignal
    from live_eval.evaluation.job import RunLimits
    from live_eval.evaluation.source import Generation, SampleSource

logger = logging.getLogger(__name__)

TOO_LONG = "skipped_too_long"
"""How the error of a prompt that does not fit begins."""
_TOO_LONG_WORDS = ("context length", "maximum allowed length")
"""SGLang has one status for all refusals; its words for a prompt that does not fit into the model's context
hold the first, for one that does not fit into the server's memory the second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """One sample to be asked for."""

    row: EvalRow
    sample: int
    name: str
    """Names the sample in request ids; unique to this run."""
    sampling: dict[str, Any]
    attempt: int = 1
    """Counts the engines' losses of it."""

    @property
    def request_id(self) -> str:
        """A new one for each attempt, since an engine may still hold the request that was given up."""
        return f"{self.name}.{self.attempt}"

    def request(self) -> GenRequest:
        """The request for this call."""
        ids = self.row.input_ids
        return GenRequest(
            request_id=self.request_id,
            text=self.row.prompt if ids is None else None,
            input_ids=ids,
            sampling=dict(self.sampling),
        )


class AnswerSink(Protocol):
    """Takes what became of each ask; neither method fails or waits."""

    def answered(self, ask: Ask, generation: Generation) -> None:
        """The engine answered on the right weights, or the request was aborted."""
        ...

    def refused(self, ask: Ask, error: str, generation: Generation | None = None) -> None:
        """There is no answer that can be scored, and there will be none."""
        ...


class Asker:
    """Asks for all samples of one run."""

    def __init__(
        self,
        asks: Iterable[Ask],
        source: SampleSource,
        *,
        label: str,
        limits: RunLimits,
        stop: StopSignal,
        sink: AnswerSink,
    ) -> None:
        self._source = source
        self._label = label
        self._limits = limits
        self._stop = stop
        self._sink = sink
        self._engine_lost = False
        self.num_repins = 0
        """How often the engines were pinned again."""
        self.labels: set[str] = set()
        """Distinct labels of the answers."""
        self._chunks = deque(_split(list(asks), limits))

    async def run(self) -> None:
        """Ask for everything, then prove that the engines still hold the target.

        Returns early when the run is stopped, by whomever; stops it itself when it cannot go on.
        """
        while self._chunks and not self._stop.stopped:
            self._engine_lost = False
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._limits.num_in_flight, len(self._chunks))):
                    group.create_task(self._send_until_lost())
            if self._engine_lost and not self._stop.stopped:
                await self._repin()
        if not self._stop.stopped:
            await self._check()

    async def _send_until_lost(self) -> None:
        while self._chunks and not self._engine_lost and not self._stop.stopped:
            await self._send(self._chunks.popleft())

    async def _send(self, chunk: list[Ask]) -> None:
        try:
            generations = await self._source.generate([ask.request() for ask in chunk])
        except EngineError as error:
            self._sort(chunk, getattr(error, "done", ()), error)
        else:
            self._sort(chunk, generations, EngineError("the engine sent no answer"))

    def _sort(self, chunk: list[Ask], generations: Sequence[Generation], error: EngineError) -> None:
        by_id = {generation.request_id: generation for generation in generations}
        lost = []
        for ask in chunk:
            generation = by_id.get(ask.request_id)
            if generation is None:
                lost.append(ask)
            else:
                self._hand_on(ask, generation)
        if lost:
            self._lose(lost, error)

    def _hand_on(self, ask: Ask, generation: Generation) -> None:
        reason = generation.finish_reason
        if reason == "refused":
            self._sink.refused(ask, _refusal(generation.detail), generation)
        elif reason == "abort" or (self._is_ours(generation) and reason in ("stop", "length")):
            self._sink.answered(ask, generation)
        elif generation.label != self._label:
            text = f"answered on weights {generation.label!r} instead of {self._label!r}"
            self._sink.refused(ask, text, generation)
            self._stop.fail(EndReason.MIXED_VERSION, f"{generation.engine} {text} ({ask.request_id})")
        else:
            self._sink.refused(ask, f"the engine ended it by {reason!r}", generation)

    def _is_ours(self, generation: Generation) -> bool:
        self.labels.add(generation.label)
        return generation.label == self._label

    def _lose(self, chunk: list[Ask], error: EngineError) -> None:
        if self._stop.stopped:  # an abort ends calls in any way; what has no answer counts as aborted
            return
        self._engine_lost = True
        logger.warning("%d samples lost with an engine: %s", len(chunk), error)
        given_up = [ask for ask in chunk if ask.attempt > self._limits.max_engine_retries]
        for ask in given_up:
            self._sink.refused(ask, f"lost with its engine {ask.attempt} times, last: {error}")
        if given_up:
            detail = f"samples were lost with their engine {given_up[0].attempt} times, last: {error}"
            self._stop.fail(EndReason.ENGINE_FAILED, detail)
            return
        # In front, so that engines which always die end the job soon and not after all other samples.
        self._chunks.appendleft([replace(ask, attempt=ask.attempt + 1) for ask in chunk])

    async def _check(self) -> None:
        error: EngineError | None = None
        for _ in range(self._limits.max_engine_retries + 1):
            try:
                await self._source.check_after()
            except PinMismatch as mismatch:
                self._stop.fail(EndReason.PIN_MISMATCH, f"after the last sample: {mismatch}")
                return
            except EngineError as died:
                error = died
            else:
                return
            await self._repin()
            if self._stop.stopped:
                return
        self._stop.fail(EndReason.ENGINE_FAILED, f"the engines could not be checked afterwards: {error}")

    async def _repin(self) -> None:
        try:
            await self._source.repin()
        except (EngineError, StoreError) as error:
            self._stop.fail(_repin_reason(error), f"pinning again failed: {error}")
        else:
            self.num_repins += 1


def _split(asks: list[Ask], limits: RunLimits) -> list[list[Ask]]:
    """Calls of equal size, so that a small set too is spread over all engines."""
    size = max(1, min(limits.chunk_size, -(-len(asks) // limits.num_in_flight)))
    return [asks[i : i + size] for i in range(0, len(asks), size)]


def _refusal(text: str) -> str:
    too_long = any(words in text.lower() for words in _TOO_LONG_WORDS)
    return f"{TOO_LONG}: {text}" if too_long else f"refused: {text}"


def _repin_reason(error: EngineError | StoreError) -> EndReason:
    match error:
        case PinMismatch():
            return EndReason.PIN_MISMATCH
        case LoadFailed():
            return EndReason.LOAD_FAILED
        case CorruptVersion():
            return EndReason.CORRUPT_VERSION
        case NoSuchVersion():
            return EndReason.VERSION_GONE
        case EngineError():
            return EndReason.ENGINE_FAILED
        case _:
            return EndReason.INTERNAL
