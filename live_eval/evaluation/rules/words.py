"""F1 over words, as question answering measures it (Rajpurkar et al. 2016, SQuAD)."""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import Any

from live_eval.evaluation.labels import label_text

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_WHOLE_ANSWERS = frozenset({"yes", "no", "noanswer"})
"""Answers that are right or wrong, never half right."""


def f1(response: str, label: Any) -> float:
    """Harmonic mean of precision and recall over words, each counted as often as it stands there."""
    found, expected = words(response), words(label_text(label))
    if {" ".join(found), " ".join(expected)} & _WHOLE_ANSWERS and found != expected:
        return 0.0
    shared = (Counter(found) & Counter(expected)).total()
    return 2 * shared / (len(found) + len(expected)) if shared else 0.0


def words(text: str) -> list[str]:
    """Lower-case words without punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()
