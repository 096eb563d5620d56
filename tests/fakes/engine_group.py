"""What tests of an engine group share: settings with short limits, requests, a wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from fakes.engine import FakeEngine

from live_eval.engines.engine import RestartPolicy
from live_eval.engines.group import EngineGroup, GroupSettings
from live_eval.engines.pin import PinLimits, PinTarget
from live_eval.evaluation.source import GenRequest

SETTINGS = GroupSettings(
    limits=PinLimits(flush_s=1.0, load_s=10, fingerprint_s=10),
    restarts=RestartPolicy(back_off_s=0.05),
    usable_timeout_s=10,
    request_timeout_s=10,
    max_prompts_per_call=4,
)

MakeGroup = Callable[..., Awaitable[tuple[EngineGroup, list[FakeEngine]]]]
Version = Callable[[int], PinTarget]


def prompts(num: int, *, prefix: str = "r") -> list[GenRequest]:
    return [GenRequest(request_id=f"{prefix}{n}", text=f"p{n}") for n in range(num)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the fakes have no events
            await asyncio.sleep(0.005)
