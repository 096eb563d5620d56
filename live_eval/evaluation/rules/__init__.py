"""slime's reward rules by their names, for evals without slime. They run in grading workers.

`grade` is what a worker calls: `args` has `rm_type`, the dataset's rule, `rm_url` and `deadline_s`. Each
rule raises where it cannot tell right from wrong; it answers 0 only for an answer that is wrong.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from live_eval.evaluation.set_config import BOXED, REMOTE

if TYPE_CHECKING:
    from argparse import Namespace

    from live_eval.evaluation.rewards import RewardSample

GRADE = "live_eval.evaluation.rules.grade"
"""Dotted path of `grade`."""


async def grade(args: Namespace, sample: RewardSample) -> float | dict[str, float]:
    """The sample's reward by the rule `args.rm_type`, which may begin with `boxed_`."""
    rule, response = args.rm_type, sample.response
    if rule.startswith(BOXED):
        from live_eval.evaluation.rules.boxed import last_boxed

        rule, response = rule.removeprefix(BOXED), last_boxed(response) or ""
    if rule == REMOTE:
        from live_eval.evaluation.rules.remote import ask

        return await ask(args.rm_url, sample, budget_s=args.deadline_s)
    if rule == "random":
        return float(hashlib.sha256(sample.where.encode()).digest()[0] % 2)
    return _local(rule, response, sample)


def _local(rule: str, response: str, sample: RewardSample) -> Any:
    # Imported where it is used: a worker that counts words need not load sympy.
    match rule:
        case "math":
            from live_eval.evaluation.rules.mathematics import boxed_answer

            return boxed_answer(response, sample.label)
        case "deepscaler":
            from live_eval.evaluation.rules.mathematics import answer_after_thinking

            return answer_after_thinking(response, sample.label)
        case "dapo":
            from live_eval.evaluation.rules.dapo import answer_line

            return answer_line(response, sample.label)
        case "f1":
            from live_eval.evaluation.rules.words import f1

            return f1(response, sample.label)
        case "gpqa":
            from live_eval.evaluation.rules.choices import multiple_choice

            return multiple_choice(response, sample.label, sample.metadata)
    raise ValueError(f"there is no rule {rule!r}")
