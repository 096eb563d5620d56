"""A weight update, as the training loop sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """Something that a trainer does with its weights between two steps."""

    run: Callable[[], object]
    """Returns when the trainer may go on."""
    finish: Callable[[], object] = lambda: None
    """Waits for what `run` left in the background; in nobody's time."""
