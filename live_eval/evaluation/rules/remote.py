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
MAX_ANSWER_BYTES = 1 << 20
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
            status, body = await _answer(url, payload)
        except httpx.TransportError as error:
            problem = f"{type(error).__name__}: {error}"
            continue
        said = body[:200].decode("utf-8", "replace")
        if status == 429 or status >= 500:
            problem = f"status {status}: {said}"
            continue
        if not 200 <= status < 300:
            raise RemoteRewardError(f"{url} answered status {status}: {said}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RemoteRewardError(f"{url} answered no JSON: {said!r}") from error
    raise RemoteRewardError(f"{url} gave no reward, last: {problem}")


async def _answer(url: str, payload: dict[str, Any]) -> tuple[int, bytes]:
    """Status and body; RemoteRewardError for a body that no reward can have."""
    body = bytearray()
    async with _session().stream("POST", url, json=payload) as answer:
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > MAX_ANSWER_BYTES:
                raise RemoteRewardError(f"{url} answered with more than {MAX_ANSWER_BYTES} bytes")
    return answer.status_code, bytes(body)


def _session() -> httpx.AsyncClient:
    global _client
    if _client is None:
        _client = httpx.AsyncClient(timeout=httpx.Timeout(120.0, connect=10.0))
    return _client
