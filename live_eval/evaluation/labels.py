"""The one rule by which labels and answers become comparable text.

    str     Unicode NFC, white space stripped at both ends; case and inner spaces count
    bool    `true` or `false`
    int     its decimal digits: 72 -> `72`
    float   a whole number without its point: 72.0 -> `72`; others in the shortest form: 0.5 -> `0.5`
    others  (null, list, object, NaN, infinity) have no text: DatasetError

An answer is a str, so the labels 72, 72.0 and "72" all accept the answer ` 72`.
"""

from __future__ import annotations

import math
import unicodedata
from typing import Any

from live_eval.errors import DatasetError


def label_text(label: Any) -> str:
    """The comparable text of a label; DatasetError for a kind that has none."""
    if isinstance(label, str):
        return unicodedata.normalize("NFC", label).strip()
    if isinstance(label, bool):
        return "true" if label else "false"
    if isinstance(label, int):
        return str(label)
    if isinstance(label, float) and math.isfinite(label):
        return str(int(label)) if label.is_integer() else repr(label)
    raise DatasetError(
        f"label {_shorten(repr(label))} ({type(label).__name__}) cannot be matched exactly: "
        "give a string, a number or a boolean, or use a reward function"
    )


def _shorten(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[:limit] + "..."
