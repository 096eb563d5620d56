"""Samples that come one by one, graded many at a time.

Owns the calls under way. A call is made when `size` samples wait, or a moment after the first of them
came, so that the last samples of a job do not wait for more. A call nobody waits for is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from live_eval.errors import RewardError

if TYPE_CHECKING:
    from live_eval.evaluation.grading_pool import GradingPool, Value
    from live_eval.evaluation.rewards import RewardSample

LINGER_S = 0.05
"""How long the first of several samples waits for others."""

_Waiting = tuple["RewardSample", "asyncio.Future[Value]"]


class Gathering:
    """Of one function; used from one event loop."""

    def __init__(
        self, function: str, *, pool: GradingPool, mode: str, size: int, options: Mapping[str, Any]
    ) -> None:
        self._function = function
        self._pool = pool
        self._mode = mode
        self._size = size
        self._options = options
        self._waiting: list[_Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.Task[None]] = set()

    async def value(self, sample: RewardSample) -> Value:
        """The function's result for the sample; RewardError if there is none."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Value] = loop.create_future()
        self._waiting.append((sample, future))
        if len(self._waiting) >= self._size:
            self._send()
        elif self._timer is None:
            self._timer = loop.call_later(LINGER_S, self._send)
        return await future

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = [each for each in self._waiting if not each[1].done()]
        self._waiting = []
        if not batch:
            return
        call = asyncio.create_task(self._call(batch), name=f"rewards of {len(batch)} samples")
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        for _, future in batch:
            future.add_done_callback(lambda _: all(each.done() for _, each in batch) and call.cancel())

    async def _call(self, batch: list[_Waiting]) -> None:
        samples = [sample for sample, _ in batch]
        try:
            values = await self._pool.call_many(
                self._function, samples, mode=self._mode, options=self._options
            )
        except BaseException as error:
            self._answer(batch, [RewardError(f"the call was given up: {error!r}")] * len(batch))
            raise
        self._answer(batch, values)

    def _answer(self, batch: list[_Waiting], values: list[Value | RewardError]) -> None:
        for (_, future), value in zip(batch, values, strict=True):
            if future.done():
                continue
            if isinstance(value, RewardError):
                future.set_exception(value)
            else:
                future.set_result(value)
