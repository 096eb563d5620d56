"""What stands in the last \\boxed{} of an answer."""

from __future__ import annotations

import re

_OPENING = re.compile(r"\\(?:boxed|fbox)\s*\{")


def last_boxed(text: str) -> str | None:
    """The content of the last box whose braces are balanced; None if there is none."""
    for opening in reversed(list(_OPENING.finditer(text))):
        end = _closing(text, opening.end())
        if end is not None:
            return text[opening.end() : end]
    return None


def _closing(text: str, start: int) -> int | None:
    """Where the group that begins at `start` is closed; a brace after a backslash is a character."""
    depth, position = 1, start
    while position < len(text):
        match text[position]:
            case "\\":
                position += 1
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return position
        position += 1
    return None
