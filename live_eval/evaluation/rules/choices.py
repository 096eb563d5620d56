"""Multiple choice, as GPQA asks it: the letter that an answer chooses, or the choice in its own words.

A row's metadata may hold `choices` (a list, or a mapping by letter), `valid_letters`, `correct_letter`
and `correct_answer`; else the label is a letter, the index of a choice, or a choice's text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Any

_LETTERS = string.ascii_uppercase[:10]
"""Without choices so many are valid."""
_CHOSEN = (
    re.compile(r"\\boxed\s*\{\s*(?:\\text\s*\{)?\s*\(?([A-Za-z])\)?\s*\}"),
    re.compile(r"\b(?:answer|option|choice)\b\s*(?:is|are)?\s*[:=]?\s*[*_\s]*\(?\$?([A-Z])\b", re.IGNORECASE),
    re.compile(r"\(?\b([A-Z])\b\)?\s+is\s+(?:the\s+)?correct", re.IGNORECASE),
    re.compile(r"\b([A-Z])\b"),
)
"""From the plainest to the weakest sign of a choice; of each the last one counts."""


def multiple_choice(response: str, label: Any, metadata: Mapping[str, Any]) -> float:
    """1.0 for the right choice, else 0.0. ValueError if nothing says which one is right."""
    letters, right, texts = right_choice(label, metadata)
    answer = response.rpartition("</think>")[2]
    chosen = _chosen_letter(answer, letters)
    if chosen is not None and right is not None:
        return float(chosen == right)
    found = f" {_plain(answer)} "
    return float(any(f" {text} " in found for text in texts))


def right_choice(label: Any, metadata: Mapping[str, Any]) -> tuple[list[str], str | None, set[str]]:
    """The valid letters, the right one, and what the right choice says; ValueError if nothing says which one
    is right."""
    choices = _choices(metadata)
    letters = _valid_letters(metadata, choices)
    right = _right_letter(label, metadata, choices, letters)
    texts = {_plain(text) for text in _right_texts(label, metadata, choices, letters, right)} - {""}
    if right is None and not texts:
        raise ValueError(f"the label {label!r} names no choice, and the metadata names none either")
    return letters, right, texts


def _choices(metadata: Mapping[str, Any]) -> list[str]:
    choices = metadata.get("choices") or []
    return [str(choice) for choice in (choices.values() if isinstance(choices, Mapping) else choices)]


def _valid_letters(metadata: Mapping[str, Any], choices: list[str]) -> list[str]:
    if given := metadata.get("valid_letters"):
        return [str(letter).upper() for letter in given]
    return list(string.ascii_uppercase[: len(choices)] if choices else _LETTERS)


def _right_letter(
    label: Any, metadata: Mapping[str, Any], choices: list[str], letters: list[str]
) -> str | None:
    given = metadata.get("correct_letter")
    if isinstance(given, str) and given.strip():
        return given.strip().upper()
    if isinstance(label, int | float) and not isinstance(label, bool):
        return letters[int(label)] if label in range(len(letters)) else None
    text = str(label or "").strip()
    if text.upper() in letters:
        return text.upper()
    same = [
        letter for letter, choice in zip(letters, choices, strict=False) if _plain(choice) == _plain(text)
    ]
    return same[0] if same and text else None


def _right_texts(
    label: Any, metadata: Mapping[str, Any], choices: list[str], letters: list[str], right: str | None
) -> list[str]:
    texts = [str(metadata[key]) for key in ("correct_answer", "answer_text") if metadata.get(key)]
    if right in letters and letters.index(right) < len(choices):
        texts.append(choices[letters.index(right)])
    if isinstance(label, str) and label.strip().upper() not in letters:
        texts.append(label)
    return texts


def _chosen_letter(answer: str, letters: list[str]) -> str | None:
    for pattern in _CHOSEN:
        found = [letter.upper() for letter in pattern.findall(answer) if letter.upper() in letters]
        if found:
            return found[-1]
    return None


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()
