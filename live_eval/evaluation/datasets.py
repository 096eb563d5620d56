"""Eval sets: rows of prompts and labels, read whole and checked before anything runs.

Rows are known by their row_id (the `id` field, else the line number), never by position.
Invariant: a set is never smaller than its file, unless its configuration says so, and then by a
number that is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from live_eval.errors import ConfigError, DatasetError
from live_eval.evaluation.labels import label_text
from live_eval.evaluation.prompts import PromptTokenizer, build_prompt
from live_eval.evaluation.row_files import read_rows
from live_eval.evaluation.rules.choices import right_choice
from live_eval.evaluation.rules.dapo import whole_number
from live_eval.evaluation.set_config import (
    BOXED,
    EXACT_MATCH,
    LABEL_RULES,
    REMOTE,
    EvalSetConfig,
    is_rule,
)

__all__ = ["EXACT_MATCH", "EvalRow", "EvalSet", "EvalSetConfig", "load_eval_sets", "rule_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalRow:
    """One row of an eval set."""

    row_id: str
    line: int
    """1 for the file's first line."""
    prompt: str
    """The prompt's text, of a chat what the model's template made of it."""
    input_ids: tuple[int, ...] | None = None
    """The prompt's token ids where they are made here; else the engine tokenizes the text."""
    label: Any = None
    """As it stands in the file."""
    fields: dict[str, Any] = field(default_factory=dict)
    """All fields of the row, for reward functions."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """The row's metadata under the dataset's overrides; of a row with tools, they too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalSet:
    """A loaded dataset."""

    config: EvalSetConfig
    rows: tuple[EvalRow, ...]
    file_sha256: str = ""
    num_dropped: int = 0
    """Rows left out for their long prompts (`drop_long_prompts`)."""

    @property
    def name(self) -> str:
        """The dataset's name."""
        return self.config.name

    @property
    def num_expected(self) -> int:
        """Number of samples of one evaluation: rows times n."""
        return len(self.rows) * self.config.n

    def description(self) -> dict[str, Any]:
        """What was measured, as JSON values: all settings, the file's sha256, how many rows it has."""
        settings = msgspec.to_builtins(self.config, enc_hook=str)
        return {
            "file_sha256": self.file_sha256,
            "num_rows": len(self.rows),
            "num_dropped": self.num_dropped,
            "settings": settings,
        }

    @classmethod
    def load(cls, config: EvalSetConfig, *, tokenizer: PromptTokenizer | None = None) -> EvalSet:
        """Read and check the whole file; DatasetError names file and line of the first bad row."""
        rows: dict[str, EvalRow] = {}
        num_dropped = 0
        try:
            file = read_rows(config.path)
            for line, fields in file.rows:
                row = _located(fields, config, file.path, line, tokenizer)
                if config.drop_long_prompts and _too_long(row, config):
                    num_dropped += 1
                    continue
                earlier = rows.setdefault(row.row_id, row)
                if earlier is not row:
                    raise DatasetError(
                        f"{file.path}:{line}: id {row.row_id!r} is taken by line {earlier.line}: ids must "
                        "differ; id_key null numbers rows by their lines"
                    )
        except DatasetError as error:
            raise DatasetError(f"{error} (dataset {config.name!r})") from error
        _check_size(config, len(rows), num_dropped)
        return cls(config=config, rows=tuple(rows.values()), file_sha256=file.sha256, num_dropped=num_dropped)


def load_eval_sets(
    configs: Sequence[EvalSetConfig], *, tokenizer: PromptTokenizer | None = None
) -> dict[str, EvalSet]:
    """Load all datasets by name, in order; ConfigError if two have one name."""
    names = [config.name for config in configs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"datasets of one name: {', '.join(map(repr, twice))}; give each its own name")
    return {config.name: EvalSet.load(config, tokenizer=tokenizer) for config in configs}


def _located(
    fields: dict[str, Any], config: EvalSetConfig, path: object, line: int, tokenizer: PromptTokenizer | None
) -> EvalRow:
    try:
        return _row(fields, config, line, tokenizer)
    except DatasetError as error:
        raise DatasetError(f"{path}:{line}: {error}") from error


def _row(
    fields: dict[str, Any], config: EvalSetConfig, line: int, tokenizer: PromptTokenizer | None
) -> EvalRow:
    text, input_ids, tools = build_prompt(fields, config, tokenizer)
    row = EvalRow(
        row_id=_row_id(fields, config, line),
        line=line,
        prompt=text,
        input_ids=input_ids,
        label=_label(fields, config),
        fields=fields,
        metadata=_metadata(fields, config, tools),
    )
    _check_rule(row, config)
    return row


def _row_id(fields: dict[str, Any], config: EvalSetConfig, line: int) -> str:
    row_id = line if config.id_key is None else fields.get(config.id_key, line)
    if isinstance(row_id, bool) or not isinstance(row_id, str | int) or row_id == "":
        raise DatasetError(
            f"{config.id_key} is {row_id!r}: give a string or an integer; id_key null numbers rows by lines"
        )
    return str(row_id)


def _metadata(fields: dict[str, Any], config: EvalSetConfig, tools: list[Any] | None) -> dict[str, Any]:
    own = None if config.metadata_key is None else fields.get(config.metadata_key)
    with_tools = {} if tools is None else {"tools": tools}
    return {**(own if isinstance(own, dict) else {}), **with_tools, **config.metadata_overrides}


def _label(fields: dict[str, Any], config: EvalSetConfig) -> Any:
    if config.label_key is None:
        return None
    label = fields.get(config.label_key)
    if label is None:
        what = "is null" if config.label_key in fields else "is missing"
        raise DatasetError(f"field {config.label_key!r} {what}: every row needs a label (label_key)")
    return label


def rule_of(row: EvalRow, config: EvalSetConfig) -> str:
    """The rule or function that grades the row."""
    own = str(row.metadata.get("rm_type") or "").strip() if config.reward_by_row else ""
    return own or config.reward


def _check_rule(row: EvalRow, config: EvalSetConfig) -> None:
    """The rule that will grade the row exists and has the label that it compares with."""
    rule = rule_of(row, config)
    if rule != config.reward and config.row_function is not None:
        return
    if rule != config.reward and rule != EXACT_MATCH and not is_rule(rule):
        raise DatasetError(f"metadata.rm_type is {rule!r}, which is no rule: give a reward function instead")
    bare = rule.removeprefix(BOXED)
    if rule == EXACT_MATCH or bare in LABEL_RULES:
        if row.label is None:
            raise DatasetError(f"the rule {rule} needs a label: give label_key")
        label_text(row.label)
    try:
        if bare == "dapo":
            whole_number(row.label)
        elif bare == "gpqa":
            right_choice(row.label, row.metadata)
    except (ValueError, TypeError) as error:
        raise DatasetError(f"the rule {rule} can grade no answer of this row: {error}") from error
    if (bare == "dapo" and config.reward_key is None) or (bare == REMOTE and config.reward_url is None):
        needed = "reward_key (--eval-reward-key)" if bare == "dapo" else "reward_url (--rm-url)"
        raise DatasetError(f"the rule {rule} needs {needed}: give it")


def _too_long(row: EvalRow, config: EvalSetConfig) -> bool:
    limit = config.max_prompt_tokens
    return limit is not None and row.input_ids is not None and len(row.input_ids) > limit


def _check_size(config: EvalSetConfig, num_rows: int, num_dropped: int) -> None:
    if not num_rows:
        why = "has no rows" if not num_dropped else f"has only prompts longer than {config.max_prompt_tokens}"
        raise DatasetError(f"dataset {config.name!r}: {config.path} {why}")
    if config.min_samples is not None and config.min_samples > num_rows * config.n:
        raise DatasetError(
            f"dataset {config.name!r}: min_samples is {config.min_samples}, but an eval has only "
            f"{num_rows * config.n} samples ({num_rows} rows times {config.n})"
        )
