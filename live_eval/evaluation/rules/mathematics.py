"""Answers of mathematics, compared by value: math-verify parses both sides.

math-verify takes SIGALRM for its time limits, which works in a main thread, where workers call this; in
another thread there is no limit but the worker's own. What it cannot parse is compared as text. A time
limit that runs out is an error and no wrong answer.
"""

from __future__ import annotations

import threading
from typing import Any

from live_eval.evaluation.labels import label_text
from live_eval.evaluation.rules.boxed import last_boxed

LIMIT_S = 5
"""For each parsing and each comparison."""
_ENDS_OF_THINKING = ("</think>", "###Response")


def boxed_answer(response: str, label: Any) -> float:
    """1.0 if the last box of the answer holds the label's value, else 0.0."""
    answer = last_boxed(response)
    return float(answer is not None and same_value(answer, _truth(label)))


def answer_after_thinking(response: str, label: Any) -> float:
    """The same of what comes after the thinking; an answer that never ends its thinking is wrong."""
    for mark in _ENDS_OF_THINKING:
        if mark in response:
            return boxed_answer(response.rpartition(mark)[2], label)
    return 0.0


def same_value(answer: str, truth: str) -> bool:
    """Whether both are the same text or, as mathematics, the same value. TimeoutError: it takes too long."""
    if _bare(answer) == _bare(truth):
        return True
    from math_verify import parse, verify
    from math_verify.errors import TimeoutException

    # Elsewhere SIGALRM is a ValueError, which would look like an answer that is no mathematics.
    limit_s: Any = LIMIT_S if threading.current_thread() is threading.main_thread() else None
    try:
        expected = parse(f"${truth}$", raise_on_error=True, parsing_timeout=limit_s)
        found = parse(f"${answer}$", raise_on_error=True, parsing_timeout=limit_s)
        return verify(expected, found, raise_on_error=True, timeout_seconds=limit_s)
    except TimeoutException as error:
        raise TimeoutError(f"{answer[:80]!r} could not be compared with {truth[:80]!r} in time") from error
    except (ValueError, TypeError, ArithmeticError, AttributeError, RecursionError):
        return False  # what no parser takes for mathematics is no such value


def _truth(label: Any) -> str:
    text = label_text(label)
    boxed = last_boxed(text)
    return text if boxed is None else boxed


def _bare(text: str) -> str:
    return "".join(text.split()).strip("$").rstrip(".")
