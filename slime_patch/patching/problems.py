"""Why a checkout cannot be patched or reverted as it is: the file, the line if there is one, the matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from live_eval.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing that stands in the way, at one place."""

    file: str
    line: int | None = None
    """Counted from 1; None where the whole file is meant."""
    words: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.words}"


class PatchRefused(ConfigError):
    """Nothing was written; `problems` says what to look at."""

    code = "patch_refused"

    def __init__(self, what: str, problems: Sequence[Problem], *, advice: str = "") -> None:
        lines = [f"{what}; no file was changed", *(f"  {problem}" for problem in problems)]
        super().__init__("\n".join([*lines, advice] if advice else lines))
        self.problems = tuple(problems)
