"""The demo's two tasks, and which prompts are held out for eval.

`rev abcde=` is answered by `edcba`, `sort 52814=` by `12458`. A prompt belongs to the eval
sets or to training by a hash of its text alone, so that the two are disjoint by construction
whatever the seed and however many prompts are drawn.
"""

from __future__ import annotations

import hashlib
import json
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

LENGTH = 5
"""Symbols in a prompt and in its answer."""
HELD_OUT_SHARE = 0.1
"""Share of all prompts that training never sees."""


@dataclass(frozen=True, slots=True)
class Task:
    """A family of prompts with one right answer each."""

    name: str
    alphabet: str
    solve: Callable[[str], str]

    def example(self, rng: random.Random) -> tuple[str, str]:
        """One (prompt, answer)."""
        symbols = "".join(rng.choice(self.alphabet) for _ in range(LENGTH))
        return f"{self.name} {symbols}=", self.solve(symbols)


TASKS: tuple[Task, ...] = (
    Task("rev", string.ascii_lowercase, lambda s: s[::-1]),
    Task("sort", string.digits, lambda s: "".join(sorted(s))),
)


def held_out(prompt: str) -> bool:
    """Whether the prompt belongs to the eval sets."""
    first = hashlib.sha256(prompt.encode()).digest()[0]
    return first < 256 * HELD_OUT_SHARE


def training_examples(seed: int) -> Iterator[tuple[str, str]]:
    """Endless (prompt, answer) pairs of both tasks, none of them held out."""
    rng = random.Random(f"train-{seed}")
    while True:
        pair = rng.choice(TASKS).example(rng)
        if not held_out(pair[0]):
            yield pair


def write_eval_set(task: Task, path: Path, *, num_rows: int, seed: int) -> None:
    """Write `num_rows` distinct held-out prompts of a task as JSONL rows {id, prompt, label}."""
    rng = random.Random(f"eval-{task.name}-{seed}")
    rows: dict[str, str] = {}
    while len(rows) < num_rows:
        prompt, answer = task.example(rng)
        if held_out(prompt):
            rows[prompt] = answer
    with path.open("w", encoding="utf-8") as file:
        for number, (prompt, answer) in enumerate(rows.items()):
            file.write(json.dumps({"id": f"{task.name}-{number}", "prompt": prompt, "label": answer}) + "\n")
