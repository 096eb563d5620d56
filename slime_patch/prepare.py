"""A record of the rows that slime's own eval function asks for, made by slime's own reader.

slime's Dataset reads .jsonl and .parquet, takes slices, applies the chat template and drops prompts
that are too long; what it makes of a file is written down row by row, so that the samples of the
function's answers have rows. Runs where the eval engines are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_eval.errors import DatasetError

if TYPE_CHECKING:
    from slime_patch.datasets import DatasetPlan


def prepare(plan: DatasetPlan, target: Path, *, tokenizer: Any, dataset_class: Callable[..., Any]) -> int:
    """Write the dataset's rows to `target`; their number. DatasetError if it cannot be."""
    samples = _read(plan, tokenizer, dataset_class)
    if not samples:
        raise DatasetError(
            f"dataset {plan.name!r}: nothing is left of {plan.path}; look at the slice in its path and at "
            "--eval-max-prompt-len"
        )
    rows = (_row(number, sample, plan) for number, sample in enumerate(samples))
    target.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return len(samples)


def _read(plan: DatasetPlan, tokenizer: Any, dataset_class: Callable[..., Any]) -> list[Any]:
    try:
        dataset = dataset_class(
            plan.path,
            tokenizer,
            None,
            plan.max_prompt_tokens,
            prompt_key=plan.input_key,
            label_key=plan.label_key,
            tool_key=plan.tool_key,
            metadata_key=plan.metadata_key,
            apply_chat_template=plan.apply_chat_template,
            apply_chat_template_kwargs=plan.apply_chat_template_kwargs,
        )
    except KeyError as error:
        raise DatasetError(
            f"dataset {plan.name!r}: a row of {plan.path} has no field {error}; see --eval-input-key and "
            "--eval-label-key"
        ) from error
    except (OSError, ValueError, TypeError, AssertionError) as error:
        raise DatasetError(f"dataset {plan.name!r}: {plan.path} cannot be read: {error}") from error
    return list(dataset.samples)


def _row(number: int, sample: Any, plan: DatasetPlan) -> str:
    metadata = {**(sample.metadata or {}), **plan.metadata_overrides}
    prompt = sample.prompt if isinstance(sample.prompt, str) else json.dumps(sample.prompt, default=str)
    row = {"id": number, "prompt": prompt, "label": sample.label, "metadata": metadata}
    return json.dumps(row, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Arrays and scalars of .parquet files."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise DatasetError(f"a row holds a {type(value).__name__}, which is no JSON value")


def load_tools(checkpoint: Path) -> tuple[Any, Callable[..., Any]]:
    """The model's tokenizer and slime's Dataset."""
    from slime.utils.data import Dataset  # pyright: ignore[reportMissingImports]
    from slime.utils.processing_utils import load_tokenizer  # pyright: ignore[reportMissingImports]

    return load_tokenizer(str(checkpoint), trust_remote_code=True), Dataset
