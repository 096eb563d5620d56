"""A reward model behind an address: it is sent prompt, response and label, and answers with the reward.

Tries again, with longer and longer pauses, where the answer may come later (no connection, 429, 5xx);
the worker's deadline ends that. Any other answer is an error at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from live_eval.evaluation.rewards import RewardSample

NUM_TRIES = 10
LONGEST_PAUSE_S = 30.0
_client: httpx.AsyncClient | None = None
"""One a worker process; its connections are kept."""


class RemoteRewardError(Exception):
    """The reward model gave no reward."""


async def ask(url: str, sample: RewardSample, *, budget_s: float = 120.0) -> Any:
    """The reward: a number or a dict of numbers. RemoteRewardError with the last answer or fault.

    No pause goes beyond `budget_s` seconds, so that the fault is told and not only that time ran out.
    """
    until = time.monotonic() + 0.9 * budget_s
    payload = {"prompt": sample.prompt, "response": sample.response, "label": sample.label}
    problem = ""
    for attempt in range(NUM_TRIES):
        pause = min(0.5 * 2 ** (attempt - 1), LONGEST_PAUSE_S) if attempt else 0.0
        if time.monotonic() + pause > until:
            break
        await asyncio.sleep(pause)
        try:
            answer = await _session().post(url, json=payload)
        except httpx.TransportError as error:
            problem = f"{type(error).__name__}: {error}"
            continue
        if answer.status_code == 429 or answer.status_code >= 500:
            problem = f"status {answer.status_code}: {answer.text[:200]}"
            continue
        if answer.status_code >= 400:
            raise RemoteRewardError(f"{url} answered status {answer.status_code}: {answer.text[:200]}")
        try:
            return answer.json()
        except json.JSONDecodeError as error:
            raise RemoteRewardError(f"{url} answered no JSON: {answer.text[:200]!r}") from error
    raise RemoteRewardError(f"{url} gave no reward, last: {problem}")


def _session() -> httpx.AsyncClient:
    global _client
    if _client is None:
        _client = httpx.AsyncClient(timeout=httpx.Timeout(120.0, connect=10.0))
    return _client
