"""The demo's prompts: held out by their text alone, answered by rule."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path

import pytest

from live_eval.demo.tasks import TASKS, Task, held_out, training_examples, write_eval_set


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_tasks_reverse_and_sort() -> None:
    rng = random.Random(0)
    for task in TASKS:
        prompt, answer = task.example(rng)
        symbols = prompt.removeprefix(f"{task.name} ").removesuffix("=")
        expected = symbols[::-1] if task.name == "rev" else "".join(sorted(symbols))
        assert answer == expected


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_training_never_sees_an_eval_prompt_whatever_the_seeds(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "eval.jsonl"
    write_eval_set(task, path, num_rows=64, seed=3)
    prompts = {row["prompt"] for row in read(path)}
    trained = {prompt for seed in range(3) for prompt, _ in islice(training_examples(seed), 2000)}
    assert len(prompts) == 64
    assert all(map(held_out, prompts))
    assert not any(map(held_out, trained))


def test_an_eval_set_is_the_same_for_one_seed_and_another_for_another(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b", "c")]
    for path, seed in zip(files, (1, 1, 2), strict=True):
        write_eval_set(TASKS[0], path, num_rows=8, seed=seed)
    first, again, other = (read(path) for path in files)
    assert first == again
    assert first != other


def test_about_a_tenth_of_all_prompts_is_held_out() -> None:
    rng = random.Random(1)
    share = sum(held_out(TASKS[0].example(rng)[0]) for _ in range(5000)) / 5000
    assert 0.08 < share < 0.13
