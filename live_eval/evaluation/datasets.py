"""Eval sets: JSONL files of prompts and labels, read whole and checked before anything runs.

A file is split at `\\n` only. A byte order mark, CRLF ends and blank lines are accepted; any
other oddity is a DatasetError with file and line, so a set is never smaller than its file.
Rows are known by their row_id (the `id` field, else the line number), never by position.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from live_eval.errors import ConfigError, DatasetError
from live_eval.evaluation.labels import label_text
from live_eval.evaluation.sampling import SamplingParams

EXACT_MATCH = "exact_match"

Prompt = str | Sequence[Mapping[str, Any]]
"""Plain text, or the messages of a chat."""

Tokenize = Callable[[Prompt], Sequence[int]]
"""The model's tokenizer: a text as it stands, or a chat through the model's template, becomes token
ids, each with exactly the special tokens that the model wants. It is called once a row."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalSetConfig:
    """One dataset and how it is evaluated; ConfigError at construction if values cannot be."""

    name: str
    path: Path
    prompt_key: str = "prompt"
    label_key: str | None = "label"
    """Field of the expected answer; None where the reward function needs none."""
    id_key: str = "id"
    """Field of the row id; a row without it is known by its line number."""
    n: int = 1
    """Samples a row."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    reward: str = EXACT_MATCH
    """`exact_match`, or the dotted path of a function: `package.module.function`."""
    reward_key: str | None = None
    """Which number of a reward function that returns a dict is the reward."""
    pass_threshold: float = 1.0
    """A sample passes (for pass@k) if its reward is at least this."""
    min_coverage: float = 0.9
    """Least share of the expected samples that must be scored for a score to be given."""
    max_prompt_tokens: int | None = None
    """Longer prompts are not sent, where token ids are known; None leaves it to the engine."""

    def __post_init__(self) -> None:
        problem = ""
        if not self.name or len(self.name) > 80:
            problem = f"name {self.name!r} must have 1 to 80 characters"
        elif self.n < 1:
            problem = f"n is {self.n}: give 1 or more samples a row"
        elif not 0.0 <= self.min_coverage <= 1.0:
            problem = f"min_coverage is {self.min_coverage}: give a share between 0 and 1"
        elif not math.isfinite(self.pass_threshold):
            problem = f"pass_threshold is {self.pass_threshold}: give a finite number"
        elif self.max_prompt_tokens is not None and self.max_prompt_tokens < 1:
            problem = f"max_prompt_tokens is {self.max_prompt_tokens}: give 1 or more"
        elif self.reward == EXACT_MATCH:
            if self.label_key is None:
                problem = "exact_match needs a label: give label_key"
            elif self.reward_key is not None:
                problem = f"reward_key is {self.reward_key!r}, but exact_match returns a number"
        elif not all(part.isidentifier() for part in self.reward.split(".")) or "." not in self.reward:
            problem = f"reward is {self.reward!r}: give exact_match or a path like package.module.function"
        if problem:
            raise ConfigError(f"dataset {self.name!r}: {problem}")


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalRow:
    """One row of an eval set."""

    row_id: str
    line: int
    """1 for the file's first line."""
    prompt: str
    """The prompt's text; of a chat, its messages as JSON."""
    input_ids: tuple[int, ...] | None = None
    """The prompt's token ids where a tokenizer was given; else the engine tokenizes the text."""
    label: Any = None
    """As it stands in the file."""
    fields: dict[str, Any] = field(default_factory=dict)
    """All fields of the row, for reward functions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalSet:
    """A loaded dataset."""

    config: EvalSetConfig
    rows: tuple[EvalRow, ...]
    file_sha256: str = ""

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
        return {"file_sha256": self.file_sha256, "num_rows": len(self.rows), "settings": settings}

    @classmethod
    def load(cls, config: EvalSetConfig, *, tokenize: Tokenize | None = None) -> EvalSet:
        """Read and check the whole file; DatasetError names file and line of the first bad row."""
        try:
            data = Path(config.path).read_bytes()
        except OSError as error:
            raise DatasetError(f"dataset {config.name!r}: cannot read {config.path}: {error}") from error
        rows: dict[str, EvalRow] = {}
        for line, text in _lines(data, config):
            row = _row(_parse(text, config, line), config, line, tokenize)
            earlier = rows.setdefault(row.row_id, row)
            if earlier is not row:
                _bad(config, line, f"id {row.row_id!r} is taken by line {earlier.line}: ids must differ")
        if not rows:
            raise DatasetError(f"dataset {config.name!r}: {config.path} has no rows")
        return cls(config=config, rows=tuple(rows.values()), file_sha256=hashlib.sha256(data).hexdigest())


def load_eval_sets(
    configs: Sequence[EvalSetConfig], *, tokenize: Tokenize | None = None
) -> dict[str, EvalSet]:
    """Load all datasets by name, in order; ConfigError if two have one name."""
    names = [config.name for config in configs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"datasets of one name: {', '.join(map(repr, twice))}; give each its own name")
    return {config.name: EvalSet.load(config, tokenize=tokenize) for config in configs}


def _bad(config: EvalSetConfig, line: int, problem: str) -> NoReturn:
    raise DatasetError(f"{config.path}:{line}: {problem} (dataset {config.name!r})")


def _lines(data: bytes, config: EvalSetConfig) -> Iterator[tuple[int, str]]:
    data = data.removeprefix(b"\xef\xbb\xbf")
    for line, raw in enumerate(data.split(b"\n"), start=1):
        try:
            text = raw.decode("utf-8").strip(" \t\r")
        except UnicodeDecodeError as error:
            _bad(config, line, f"not UTF-8: {error.reason} at byte {error.start} of the line")
        if text:
            yield line, text


def _parse(text: str, config: EvalSetConfig, line: int) -> dict[str, Any]:
    try:
        row = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        _bad(config, line, f"not a JSON value: {error}")
    if not isinstance(row, dict):
        _bad(config, line, f"a JSON object is needed, this is a {type(row).__name__}")
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _row(fields: dict[str, Any], config: EvalSetConfig, line: int, tokenize: Tokenize | None) -> EvalRow:
    if config.prompt_key not in fields:
        _bad(config, line, f"no field {config.prompt_key!r}; set prompt_key to one of {sorted(fields)}")
    prompt = fields[config.prompt_key]
    _check_prompt(prompt, config, line, tokenize)
    text = prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        _bad(config, line, "the prompt has half of a surrogate pair, which is no text")
    return EvalRow(
        row_id=_row_id(fields, config, line),
        line=line,
        prompt=text,
        input_ids=tuple(tokenize(prompt)) if tokenize else None,
        label=_label(fields, config, line),
        fields=fields,
    )


def _check_prompt(prompt: Any, config: EvalSetConfig, line: int, tokenize: Tokenize | None) -> None:
    if isinstance(prompt, str):
        if not prompt:
            _bad(config, line, "the prompt is empty")
        return
    if not isinstance(prompt, list):
        _bad(config, line, f"the prompt is a {type(prompt).__name__}; give a string")
    if tokenize is None:
        _bad(
            config,
            line,
            "the prompt is a list of chat messages, which needs a tokenizer with a chat template; "
            "give one, or write the prompt as the string that the model shall see",
        )
    for message in prompt:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            _bad(config, line, "each chat message must be an object with a role")
        if not isinstance(message.get("content"), str):
            _bad(config, line, "only text is supported: each chat message's content must be a string")
    if not prompt:
        _bad(config, line, "the chat has no messages")


def _row_id(fields: dict[str, Any], config: EvalSetConfig, line: int) -> str:
    row_id = fields.get(config.id_key, line)
    if isinstance(row_id, bool) or not isinstance(row_id, str | int) or row_id == "":
        _bad(config, line, f"{config.id_key} is {row_id!r}: give a string or an integer")
    return str(row_id)


def _label(fields: dict[str, Any], config: EvalSetConfig, line: int) -> Any:
    if config.label_key is None:
        return None
    label = fields.get(config.label_key)
    if label is None:
        what = "is null" if config.label_key in fields else "is missing"
        _bad(config, line, f"field {config.label_key!r} {what}: every row needs a label (label_key)")
    if config.reward == EXACT_MATCH:
        try:
            label_text(label)
        except DatasetError as error:
            _bad(config, line, str(error))
    return label
