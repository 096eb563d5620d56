"""The process in which users' reward functions run.

    python -m live_eval.evaluation.grading_worker PARENT_PID

One request at a time: a line of JSON on standard input, answered by one on standard output.

    {"function": "package.module.name"}                   -> {"ok": true} once it is imported
    {"function": ..., "sample": {...}, "options": {...}}  -> {"value": 1.0} or {"value": {"key": 1.0}}
    {"function": ..., "samples": [...], "mode": "batch"}  -> {"results": [...]}, one of the above a sample
    anything that goes wrong                              -> {"error": "text"}

A function takes a sample, or slime's two arguments: `args`, a namespace of the options, and a sample.
In mode `batch` it takes a list of samples and returns a list; in mode `concurrent` it is async, is called
once a sample, and each call has `deadline_s` of the options.

A function runs in the main thread, where it may use SIGALRM. What it prints goes to standard
error and it reads nothing, so that it cannot break the pipe. The process dies with its parent.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import functools
import importlib
import inspect
import json
import math
import numbers
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from live_eval.evaluation.rewards import RewardSample
from live_eval.evaluation.sample import LARGEST_REWARD

_PR_SET_PDEATHSIG = 1
_MAX_ERROR_CHARS = 2000


def load_function(path: str) -> Callable[..., Any]:
    """Import `package.module.name`; ImportError, AttributeError or TypeError if there is no such function."""
    module, _, name = path.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    if not callable(function):
        raise TypeError(f"{path} is a {type(function).__name__}, not a function")
    return function


def to_reward(value: Any) -> float | dict[str, float]:
    """The returned value as a number or a dict of its numbers; TypeError or ValueError if it is neither.

    bool, int, float, NumPy scalars and 0-d arrays or tensors are numbers; NaN, infinity and what is larger
    than any score are not. What else a dict has beside its numbers, as slime's dapo the answer that it found,
    is left out.
    """
    if isinstance(value, dict):
        parts = {key: _unwrapped(part) for key, part in value.items()}
        numeric = {key: part for key, part in parts.items() if isinstance(part, numbers.Real)}
        return {_text(key): _to_number(part, f"key {key!r}") for key, part in numeric.items()}
    return _to_number(_unwrapped(value), "the reward")


def _unwrapped(value: Any) -> Any:
    # NumPy and torch are recognised by their shape of a scalar, so that neither has to be imported.
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def _to_number(value: Any, what: str) -> float:
    if not isinstance(value, numbers.Real):
        raise TypeError(f"{what} is {value!r:.80} ({type(value).__name__}), which is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= LARGEST_REWARD:
        raise ValueError(f"{what} is {number}, which is not a score")
    return number


def _text(value: object) -> str:
    """Of half a surrogate pair its number: neither a database nor a terminal takes it as it is."""
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def _describe(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return _text(f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]) + at


def _answer(request: dict[str, Any], runner: asyncio.Runner) -> dict[str, Any]:
    try:
        function = load_function(request["function"])
        if "samples" in request:
            samples = [RewardSample(**sample) for sample in request["samples"]]
            bound = _bound(function, request)
            if request["mode"] == "concurrent":
                return {"results": runner.run(_concurrently(bound, samples, request["options"]))}
            values = bound(samples)
            if inspect.isawaitable(values):
                values = runner.run(_await(values))
            return {"results": _of_batch(values, len(samples))}
        if "sample" not in request:
            return {"ok": True}
        value = _bound(function, request)(RewardSample(**request["sample"]))
        if inspect.isawaitable(value):
            value = runner.run(_await(value))
        return {"value": to_reward(value)}
    except Exception as error:  # the request handler: whatever the user's code raises is its answer
        return {"error": _describe(error)}
    finally:
        # An alarm that a function left behind would kill the process during the next sample.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


async def _await(value: Any) -> Any:
    return await value


def _bound(function: Callable[..., Any], request: dict[str, Any]) -> Callable[..., Any]:
    """The function of one argument: one that asks for two gets the options first, as in slime."""
    if _num_required(function) < 2:
        return function
    return functools.partial(function, argparse.Namespace(**request.get("options", {})))


def _num_required(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions tell nothing
        return 1
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)


def _of_batch(values: Any, num_samples: int) -> list[dict[str, Any]]:
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, list | tuple) or len(values) != num_samples:
        what = f"{len(values)} rewards" if isinstance(values, list | tuple) else f"a {type(values).__name__}"
        raise TypeError(f"it returned {what} for {num_samples} samples: return a list, one reward a sample")
    return [_one_result(value) for value in values]


async def _concurrently(
    function: Callable[..., Any], samples: list[RewardSample], options: dict[str, Any]
) -> list[dict[str, Any]]:
    async def one(sample: RewardSample) -> dict[str, Any]:
        try:
            async with asyncio.timeout(options["deadline_s"]):
                value = function(sample)
                return _one_result(await value if inspect.isawaitable(value) else value)
        except TimeoutError:
            return {"error": f"did not end within {options['deadline_s']:g} s"}
        except Exception as error:  # a request handler too: one sample's fault is that sample's answer
            return {"error": _describe(error)}

    return list(await asyncio.gather(*map(one, samples)))


def _one_result(value: Any) -> dict[str, Any]:
    try:
        return {"value": to_reward(value)}
    except Exception as error:  # a request handler too: a result may do anything when it is looked at
        return {"error": _describe(error)}


def _die_with_parent(parent_pid: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before the line above
        os._exit(1)


def _be_the_first_to_go() -> None:
    """Where memory runs out, let the kernel take this process and no engine, trainer or service."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    # A process that a function forks must neither answer in its parent's place, nor keep the pipe open when
    # its parent is killed.
    os.register_at_fork(after_in_child=lambda: (requests.close(), answers.close()))
    return requests, answers


def main() -> None:
    """Answer requests until standard input ends."""
    _die_with_parent(int(sys.argv[1]))
    _be_the_first_to_go()
    requests, answers = _take_pipes()
    pid = os.getpid()
    with asyncio.Runner() as runner:
        for line in requests:
            answer = _answer(json.loads(line), runner)
            if os.getpid() != pid:  # a child that a function forked came back from it
                os._exit(0)
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()


if __name__ == "__main__":
    main()
