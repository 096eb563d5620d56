"""slime's eval configuration as eval sets: the YAML of --eval-config, or --eval-prompt-data.

Owns what fills each setting of a dataset, in slime's order: the dataset's own entry, then `defaults`,
then the command line's options. What slime does not know stands in a section of its own, `live_eval`,
which slime passes over, so one file serves both.

    eval:
      defaults: {max_response_len: 1024}
      datasets:
        - {name: aime, path: aime.jsonl, rm_type: math, n_samples_per_eval_prompt: 8}
    live_eval:
      defaults: {timeout_s: 900}
      datasets:
        aime: {eval_every: 2, priority: 1}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

from live_eval.errors import ConfigError
from live_eval.evaluation.eval_extras import Extras, extras_of
from live_eval.evaluation.eval_options import with_defaults

FROM_OPTIONS: dict[str, tuple[str, ...]] = {
    "n_samples_per_eval_prompt": ("n_samples_per_eval_prompt",),
    "temperature": ("eval_temperature", "rollout_temperature"),
    "top_p": ("eval_top_p", "rollout_top_p"),
    "top_k": ("eval_top_k", "rollout_top_k"),
    "max_response_len": ("eval_max_response_len", "rollout_max_response_len"),
    "stop": ("rollout_stop",),
    "stop_token_ids": ("rollout_stop_token_ids",),
    "min_new_tokens": ("eval_min_new_tokens",),
    "input_key": ("eval_input_key", "input_key"),
    "label_key": ("eval_label_key", "label_key"),
    "tool_key": ("eval_tool_key", "tool_key"),
    "metadata_key": ("metadata_key",),
    "multimodal_keys": ("multimodal_keys",),
    "apply_chat_template": ("apply_chat_template",),
    "apply_chat_template_kwargs": ("apply_chat_template_kwargs",),
    "custom_rm_path": ("eval_custom_rm_path", "custom_rm_path"),
}
"""Field -> the options that fill it where the file does not, the first that is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetSettings:
    """One dataset with slime's field names, resolved; None: nobody says."""

    name: str
    path: str
    rm_type: str | None = None
    custom_rm_path: str | None = None
    input_key: str | None = None
    label_key: str | None = None
    tool_key: str | None = None
    metadata_key: str | None = None
    multimodal_keys: dict[str, str] | None = None
    apply_chat_template: bool | None = None
    apply_chat_template_kwargs: dict[str, Any] | None = None
    n_samples_per_eval_prompt: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_response_len: int | None = None
    stop: list[str] | str | None = None
    stop_token_ids: list[int] | None = None
    min_new_tokens: int | None = None
    repetition_penalty: float | None = None
    skip_special_tokens: bool | None = None
    no_stop_trim: bool | None = None
    custom_generate_function_path: str | None = None
    app_service: str | None = None
    eval_task_timeout: float | None = None
    min_eval_samples: int | None = None
    eval_early_stop_remaining: int | None = None
    eval_early_stop_idle_timeout: float | None = None
    message_processor: dict[str, Any] | None = None
    reward_model: dict[str, Any] | None = None
    remote_environment: dict[str, Any] | None = None
    metadata_overrides: dict[str, Any] = field(default_factory=dict)


_KNOWN = tuple(each.name for each in fields(DatasetSettings))


@dataclass(frozen=True, kw_only=True, slots=True)
class EvalFile:
    """What an eval configuration says, resolved."""

    datasets: tuple[DatasetSettings, ...]
    extras: Mapping[str, Extras]
    """By dataset name, for every dataset."""


def read_eval_config(path: Path | str, options: Mapping[str, Any] | None = None) -> EvalFile:
    """Resolve a file; ConfigError says what in it cannot be. `options`: the command line's, by attribute."""
    root = read_yaml(Path(path))
    section = root.get("eval", root)
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: `eval` is a {type(section).__name__}: give a mapping with `datasets`")
    try:
        defaults = _mapping(section.get("defaults"), "eval.defaults")
        entries = _entries(section.get("datasets"))
        datasets = resolve(entries, defaults, options)
        return EvalFile(
            datasets=datasets, extras=extras_of(root.get("live_eval"), [each.name for each in datasets])
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_prompt_data(words: Sequence[str], options: Mapping[str, Any] | None = None) -> EvalFile:
    """The datasets of --eval-prompt-data NAME PATH ...; a lone path is called aime, as in slime."""
    pairs = ["aime", *words] if len(words) == 1 else list(words)
    if len(pairs) % 2 or not pairs:
        raise ConfigError(f"--eval-prompt-data {' '.join(words)}: give pairs of a name and a path")
    entries = [{"name": name, "path": path} for name, path in zip(pairs[::2], pairs[1::2], strict=True)]
    datasets = resolve(entries, {}, options)
    return EvalFile(datasets=datasets, extras=extras_of(None, [each.name for each in datasets]))


def resolve(
    entries: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any], options: Mapping[str, Any] | None
) -> tuple[DatasetSettings, ...]:
    """Effective values: entry, then defaults, then options. A null in the file counts as given."""
    _refuse_unknown(defaults, "eval.defaults")
    filled = with_defaults(options)
    return tuple(_resolve(entry, defaults, filled) for entry in entries)


def _resolve(
    entry: Mapping[str, Any], defaults: Mapping[str, Any], options: Mapping[str, Any]
) -> DatasetSettings:
    name = entry.get("name")
    if not isinstance(name, str) or not isinstance(entry.get("path", defaults.get("path")), str):
        raise ConfigError(f"dataset {name!r}: each dataset needs a name and a path, both text")
    _refuse_unknown(entry, f"dataset {name!r}")
    values: dict[str, Any] = {key: option for key in _KNOWN if (option := _option(key, options)) is not None}
    values |= {**defaults, **entry}
    overrides = values.pop("metadata_overrides", None)
    if overrides is not None and not isinstance(overrides, dict):
        raise ConfigError(f"dataset {name!r}: metadata_overrides is {overrides!r}: give a mapping")
    try:
        return msgspec.convert({**values, "metadata_overrides": dict(overrides or {})}, DatasetSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"dataset {name!r}: {error}") from error


def _option(key: str, options: Mapping[str, Any]) -> Any:
    for name in FROM_OPTIONS.get(key, ()):
        if options.get(name) is not None:
            return options[name]
    return None


def _refuse_unknown(values: Mapping[str, Any], where: str) -> None:
    unknown = sorted(set(map(str, values)) - set(_KNOWN))
    if not unknown:
        return
    ours = [name for name in unknown if name in Extras.names()]
    hint = f"; {', '.join(ours)} belongs into the section live_eval of the file" if ours else ""
    raise ConfigError(f"{where}: unknown {', '.join(unknown)}{hint}; known are {', '.join(_KNOWN)}")


def _entries(datasets: Any) -> list[dict[str, Any]]:
    if isinstance(datasets, dict):
        datasets = [{"name": name, **_mapping(entry, f"dataset {name}")} for name, entry in datasets.items()]
    if not isinstance(datasets, list) or not datasets:
        raise ConfigError("eval.datasets is missing: give a list, or a mapping by name")
    return [dict(_mapping(entry, "a dataset")) for entry in datasets]


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{what} is {value!r}: give a mapping")
    return value


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML or JSON file as slime reads it, references resolved; ConfigError if it is none."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        root = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except (YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(root, dict):
        raise ConfigError(f"{path}: a mapping with `eval` is needed, this is a {type(root).__name__}")
    return {str(key): value for key, value in root.items()}
