"""The datasets of a command line, read once before anything is started or made.

Owns what a person is told of them: flags where the command line said it, slime's names where the file
did. Loading them for good, with the model's tokenizer, is the service's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from live_eval.errors import ConfigError, DatasetError
from live_eval.evaluation.datasets import EvalSet
from live_eval.evaluation.eval_config import load_options
from live_eval.evaluation.row_files import read_rows, split_path

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from live_eval.evaluation.set_config import EvalSetConfig


def datasets_of(args: argparse.Namespace) -> tuple[EvalSetConfig, ...]:
    """The eval sets, whose files can be read and hold what is needed; ConfigError or DatasetError."""
    options = vars(args)
    words = options.get("eval_prompt_data") or []
    if not options.get("eval_config") and len(words) == 1 and not _real(words[0]).is_file():
        raise ConfigError(f"--eval-prompt-data {words[0]}: give a name and a file: NAME PATH")
    configs = load_options(options)
    for config in configs:
        _check(config, options)
    return configs


def _check(config: EvalSetConfig, options: Mapping[str, Any]) -> None:
    """The fields first, in the words of whoever named them; then all that holds for any tokenizer."""
    path = split_path(config.path)[0]
    if not path.is_file():
        where = (
            f"dataset {config.name!r}" if options.get("eval_config") else f"--eval-prompt-data {config.name}"
        )
        raise ConfigError(f"{where}: there is no file {path}")
    for line, fields in read_rows(config.path).rows:
        if config.prompt_key not in fields:
            _no_field(config, options, "input_key", config.prompt_key, f"{path}:{line}", sorted(fields))
        if config.label_key is not None and config.label_key not in fields:
            _no_field(config, options, "label_key", config.label_key, f"{path}:{line}", sorted(fields))
    EvalSet.load(config, tokenizer=_NoTokenizer())


def _no_field(
    config: EvalSetConfig,
    options: Mapping[str, Any],
    setting: str,
    value: str,
    where: str,
    there: Sequence[str],
) -> NoReturn:
    flag = next((name for name in (f"eval_{setting}", setting) if options.get(name) == value), None)
    if flag is None and not options.get("eval_config"):
        flag = setting
    name = setting if flag is None else f"--{flag.replace('_', '-')}"
    raise DatasetError(
        f"dataset {config.name!r}: {where} has no field {value!r}: give {name} one of {', '.join(there)}"
    )


def _real(word: str) -> Path:
    from pathlib import Path

    return split_path(Path(word))[0]


class _NoTokenizer:
    """Stands for the model's, which need not be there yet: says nothing of chat templates and lengths."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None,
        options: Mapping[str, Any],
    ) -> str:
        """Some text."""
        return "chat"

    def encode(self, text: str, *, special_tokens: bool) -> list[int]:
        """No tokens, which are never too many."""
        return []
