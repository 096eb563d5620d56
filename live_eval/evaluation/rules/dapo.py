"""DAPO's rule: the last line `Answer: ...` near the end, compared with a whole number.

As in the DAPO recipe a right answer is 1 and a wrong one -1; `acc` is 1 and 0.
"""

from __future__ import annotations

import re
from typing import Any

from live_eval.evaluation.labels import label_text
from live_eval.evaluation.rules.boxed import last_boxed

TAIL = 300
"""Only so many characters at the end of an answer are looked at."""
_ANSWER = re.compile(r"answer\s*:\s*(.+)", re.IGNORECASE)
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")


def answer_line(response: str, label: Any) -> dict[str, float]:
    """`score` and `acc`; ValueError if the label is no whole number."""
    truth = whole_number(label)
    lines = _ANSWER.findall(response[-TAIL:])
    right = bool(lines) and _value(lines[-1]) == truth
    return {"score": 1.0 if right else -1.0, "acc": float(right)}


def whole_number(label: Any) -> float:
    """What the label is; ValueError if that is no whole number."""
    problem = f"the label {label!r:.80} is no whole number, which dapo compares with"
    try:
        truth = float(label_text(label))
    except ValueError as error:
        raise ValueError(problem) from error
    if not truth.is_integer():
        raise ValueError(problem)
    return truth


def _value(answer: str) -> float | None:
    """The number that an answer is, without its dress; None if it is none."""
    text = last_boxed(answer) or answer
    text = _WRAPPED.sub(r"\1", text.rpartition("=")[2])
    text = text.replace("{,}", ",").replace("\\!", "").replace("\\,", "").replace("\\%", "%")
    text = text.strip().strip("$*`\\() ").rstrip(".").strip("$* ")
    match = _NUMBER.match(text)
    if match is None or not _is_unit(text[match.end() :]):
        return None
    return float(match[0].replace(",", ""))


def _is_unit(rest: str) -> bool:
    """Whether what follows a number says what it counts, and changes nothing of it."""
    words = rest.strip().strip("$.*^{}\\°")
    return all(part.isalpha() for part in words.split())
