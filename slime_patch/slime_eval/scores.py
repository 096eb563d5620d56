"""What slime's eval function returned, as live-eval's samples. Knows slime's Sample by its fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from live_eval.errors import DatasetError
from live_eval.evaluation.sample import LARGEST_REWARD, Sample, SampleStatus

FINISH = {"completed": "stop", "truncated": "length", "aborted": "abort"}
"""slime's Sample.Status in the engine's words."""


def samples_of(
    returned: dict[str, dict[str, Any]], dataset: str, *, n: int, policy_version: int | None, checkpoint: str
) -> list[Sample]:
    """One record a sample, in the function's order; DatasetError if it did not return the dataset."""
    data = _of_dataset(returned, dataset)
    rewards = list(data["rewards"])
    given: Sequence[Any] = data.get("samples") or [None] * len(rewards)
    if len(given) != len(rewards):
        raise DatasetError(
            f"the eval function returned {len(rewards)} rewards for {len(given)} samples of {dataset!r}"
        )
    names = _names(given, n)
    return [
        _record(
            sample, reward, dataset=dataset, row_id=row_id, number=number, policy_version=policy_version,
            checkpoint=checkpoint,
        )
        for sample, reward, (row_id, number) in zip(given, rewards, names, strict=True)
    ]  # fmt: skip


def labels_of(samples: Sequence[Sample]) -> list[str]:
    """Distinct weight labels that slime kept of the answers."""
    return sorted({label for sample in samples for label in sample.engine_label.split(",") if label})


def numbers_of(logged: dict[str, Any]) -> dict[str, float]:
    """What of a row can be drawn."""
    found: dict[str, float] = {}
    for name, value in logged.items():
        number = _number(value)
        if number is not None:
            found[name] = number
    return found


def _of_dataset(returned: dict[str, dict[str, Any]], dataset: str) -> dict[str, Any]:
    if dataset in returned:
        return returned[dataset]
    names = ", ".join(map(repr, returned)) or "nothing"
    raise DatasetError(f"the eval function was asked for {dataset!r} and returned {names}")


def _names(given: Sequence[Any], n: int) -> list[tuple[str, int]]:
    """(row, number in the row): as slime's stock function numbers them, else one after the other."""
    found = [getattr(sample, "index", None) for sample in given]
    indices = [index for index in found if isinstance(index, int)]
    if len(set(indices)) == len(given):
        return [(str(index // n), index % n) for index in indices]
    return [(str(number), 0) for number in range(len(given))]


def _record(
    sample: Any,
    reward: Any,
    *,
    dataset: str,
    row_id: str,
    number: int,
    policy_version: int | None,
    checkpoint: str,
) -> Sample:
    state = str(getattr(getattr(sample, "status", None), "value", "completed"))
    aborted = state == "aborted"
    score = None if aborted else _number(reward)
    status: SampleStatus = "aborted" if aborted else "scored" if score is not None else "errored"
    whole = getattr(sample, "reward", None)
    return Sample(
        dataset=dataset,
        row_id=row_id,
        sample=number,
        attempt=1,
        prompt=_text(getattr(sample, "prompt", "")),
        label=_plain(getattr(sample, "label", None)),
        response=getattr(sample, "response", None),
        reward=score,
        rewards=numbers_of(whole) if isinstance(whole, dict) else {},
        status=status,
        error=_error(reward, status),
        finish_reason=FINISH.get(state, state),
        num_tokens=int(getattr(sample, "response_length", 0) or 0),
        engine_label=",".join(sorted(set(map(str, getattr(sample, "weight_versions", None) or ())))),
        policy_version=policy_version,
        checkpoint=checkpoint,
    )


def _error(reward: Any, status: SampleStatus) -> str:
    match status:
        case "scored":
            return ""
        case "aborted":
            return "aborted within the eval function"
    return f"the eval function gave the reward {reward!r}"


def _number(value: Any) -> float | None:
    """Numbers of Python, numpy and torch; None for anything else, and for what is beyond any score."""
    if isinstance(value, str | bytes | dict | list | tuple) or value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= LARGEST_REWARD else None


def _text(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value
