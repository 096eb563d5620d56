"""Text of models, files and users as a terminal may be given it.

Invariant: it changes nothing about the terminal: no colour, title, place or order of characters.
"""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""All but line ends and tabs; marks that turn the order of characters, and halves of surrogate pairs, too."""


def plain(text: str) -> str:
    """The text with every control character as Python writes it: `\\x1b`."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def in_one_line(text: str) -> str:
    """The same, and line ends and tabs are written so too."""
    return plain(text).replace("\n", "\\n").replace("\t", "\\t")
