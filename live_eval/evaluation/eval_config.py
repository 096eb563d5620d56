"""From slime's resolved settings to live-eval's eval sets: the one way, for slime jobs and without slime.

Owns which of slime's settings mean what here, and which are refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_eval.errors import ConfigError
from live_eval.evaluation.eval_extras import extras_of
from live_eval.evaluation.eval_options import with_defaults
from live_eval.evaluation.eval_settings import read_eval_config, read_prompt_data, read_yaml
from live_eval.evaluation.sampling import SamplingParams
from live_eval.evaluation.set_config import BOXED, EXACT_MATCH, REMOTE, RULES, EvalSetConfig, is_rule

if TYPE_CHECKING:
    from live_eval.evaluation.eval_extras import Extras
    from live_eval.evaluation.eval_settings import DatasetSettings, EvalFile

REFUSED = {
    "multimodal_keys": "only text is evaluated",
    "custom_generate_function_path": "the engines are asked directly; a generate function of your own needs "
    "slime's eval function",
    "app_service": "the engines are asked directly; an app service needs slime's eval function",
    "message_processor": "it needs slime's eval function",
    "reward_model": "give the dataset an rm_type or custom_rm_path",
    "remote_environment": "it needs slime's eval function",
}
"""Fields that would make another measurement than the user asked for."""

INSTEAD_OF_NULL = {
    "multimodal_keys": "multimodal_keys",
    "apply_chat_template": "apply_chat_template",
    "apply_chat_template_kwargs": "apply_chat_template_kwargs",
    "stop": "rollout_stop",
    "stop_token_ids": "rollout_stop_token_ids",
    "min_new_tokens": "eval_min_new_tokens",
    "custom_rm_path": "custom_rm_path",
}
"""Fields whose null slime, when it evaluates, takes for not given -> the option that it takes then."""


def load(path: Path | str, options: Mapping[str, Any] | None = None) -> tuple[EvalSetConfig, ...]:
    """The eval sets of an eval configuration file, those of highest priority first.

    `options` are slime's command-line options by attribute (`eval_temperature`), None or missing where
    not given. ConfigError says what cannot be.
    """
    return eval_sets(read_eval_config(path, options), options)


def load_prompt_data(
    words: Sequence[str], options: Mapping[str, Any] | None = None
) -> tuple[EvalSetConfig, ...]:
    """The same of the words of --eval-prompt-data."""
    return eval_sets(read_prompt_data(words, options), options)


def load_options(options: Mapping[str, Any]) -> tuple[EvalSetConfig, ...]:
    """The eval sets of parsed options: --eval-config comes before --eval-prompt-data, as in slime."""
    if options.get("eval_config"):
        return load(options["eval_config"], options)
    if options.get("eval_prompt_data"):
        return load_prompt_data(options["eval_prompt_data"], options)
    raise ConfigError("there is nothing to evaluate on: give --eval-config or --eval-prompt-data NAME PATH")


def eval_sets(file: EvalFile, options: Mapping[str, Any] | None) -> tuple[EvalSetConfig, ...]:
    """All datasets of the file, in order of priority; ConfigError if two have one name."""
    names = [dataset.name for dataset in file.datasets]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"datasets of one name: {', '.join(twice)}; give each its own name")
    configs = [eval_set(dataset, file.extras[dataset.name], options) for dataset in file.datasets]
    return by_priority(configs)


def by_priority(configs: Sequence[EvalSetConfig]) -> tuple[EvalSetConfig, ...]:
    """Highest priority first, else as they are."""
    return tuple(sorted(configs, key=lambda config: -config.priority))


def file_extras(path: Path | str | None, names: Sequence[str]) -> dict[str, Extras]:
    """What the section `live_eval` of an eval file says of these datasets; nothing without a file."""
    section = None if path is None else read_yaml(Path(path)).get("live_eval")
    try:
        return extras_of(section, names)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def eval_set(
    settings: DatasetSettings,
    extras: Extras,
    options: Mapping[str, Any] | None = None,
    *,
    reward: str | None = None,
) -> EvalSetConfig:
    """One dataset's effective values as an eval set; ConfigError for what cannot be.

    `reward`: a function that knows slime's rules itself, in place of the built-in ones.
    """
    filled = with_defaults(options)
    settings = without_nulls(settings, filled)
    for name, reason in REFUSED.items():
        if (value := getattr(settings, name)) is not None:
            raise ConfigError(f"dataset {settings.name!r}: {name} is {value!r}: {reason}")
    longest = filled["eval_max_prompt_len"]
    graded = _reward(settings, filled, reward)
    config = EvalSetConfig(
        name=settings.name,
        path=Path(settings.path),
        prompt_key=needed(settings, "input_key"),
        label_key=settings.label_key,
        tool_key=settings.tool_key,
        metadata_key=settings.metadata_key,
        metadata_overrides=_metadata(settings),
        apply_chat_template=bool(settings.apply_chat_template),
        apply_chat_template_kwargs=dict(settings.apply_chat_template_kwargs or {}),
        special_tokens=False,
        n=needed(settings, "n_samples_per_eval_prompt"),
        sampling=sampling_of(
            settings, seed=extras.seed, skip_special_tokens=_skip(settings, filled, graded["reward"])
        ),
        max_prompt_tokens=longest,
        drop_long_prompts=longest is not None,
        min_samples=settings.min_eval_samples,
        timeout_s=settings.eval_task_timeout,
        early_stop_remaining=settings.eval_early_stop_remaining,
        early_stop_idle_s=settings.eval_early_stop_idle_timeout,
        **graded,
    )
    return replace(config, **extras.given())


def without_nulls(settings: DatasetSettings, options: Mapping[str, Any]) -> DatasetSettings:
    """What slime uses in an eval where the file says null."""
    found = {
        name: options[option]
        for name, option in INSTEAD_OF_NULL.items()
        if getattr(settings, name) is None and options.get(option) is not None
    }
    return replace(settings, **found)


def _metadata(settings: DatasetSettings) -> dict[str, Any]:
    rule = {} if settings.rm_type is None else {"rm_type": settings.rm_type}
    return {**rule, **settings.metadata_overrides}


def _reward(settings: DatasetSettings, options: Mapping[str, Any], instead: str | None) -> dict[str, Any]:
    """slime's order: a function, the dataset's rule, a row's own, the general one; else exact match."""
    key = options["eval_reward_key"] or options["reward_key"]
    if instead is not None:
        return {"reward": instead, "reward_key": key}
    if settings.custom_rm_path is not None:
        return {"reward": settings.custom_rm_path, "reward_key": key}
    own = str(_metadata(settings).get("rm_type") or "").strip()
    rule = own or str(options["rm_type"] or "").strip() or EXACT_MATCH
    if rule == EXACT_MATCH and settings.label_key is None:
        raise ConfigError(
            f"dataset {settings.name!r} has no reward: give rm_type, custom_rm_path, or a label_key to "
            "compare answers with labels"
        )
    bare = rule.removeprefix(BOXED)
    if rule != EXACT_MATCH and not is_rule(rule) and bare != "ifbench":
        raise ConfigError(
            f"dataset {settings.name!r}: rm_type {rule!r} is no rule: give one of {', '.join(RULES)}, "
            f"or {BOXED}RULE, or a function of yours as custom_rm_path"
        )
    given: dict[str, Any] = {"reward": rule, "reward_by_row": not own}
    if bare in ("dapo", REMOTE) or not own:
        given["reward_key"] = key
    if bare == REMOTE or options["rm_url"] is not None:
        given["reward_url"] = options["rm_url"]
    return given


def _skip(settings: DatasetSettings, options: Mapping[str, Any], reward: str) -> bool:
    """Whether answers come without special tokens: yes, unless the file or slime's own job keeps them.

    In a slime job the option has a value, and slime's rewards get what they get in slime. An exact
    match, which slime does not have, could never be one with an end token in the answer.
    """
    if settings.skip_special_tokens is not None:
        return settings.skip_special_tokens
    return reward == EXACT_MATCH or bool(options.get("rollout_skip_special_tokens", True))


def sampling_of(
    settings: DatasetSettings, *, seed: int | None = None, skip_special_tokens: bool = True
) -> SamplingParams:
    """How slime samples with these values; ConfigError for what cannot be."""
    keep, penalty = settings.no_stop_trim, settings.repetition_penalty
    stop = settings.stop
    values = [needed(settings, name) for name in ("temperature", "top_p", "top_k", "max_response_len")]
    temperature, top_p, top_k, max_new_tokens = values
    try:
        return SamplingParams(
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            max_new_tokens=max_new_tokens,
            min_new_tokens=settings.min_new_tokens or 0,
            stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
            stop_token_ids=tuple(settings.stop_token_ids or ()),
            no_stop_trim=True if keep is None else keep,
            repetition_penalty=1.0 if penalty is None else penalty,
            skip_special_tokens=skip_special_tokens,
            spaces_between_special_tokens=False,
            seed=seed,
        )
    except ConfigError as error:
        raise ConfigError(f"dataset {settings.name!r}: {error}") from error


def needed(settings: DatasetSettings, name: str) -> Any:
    """A setting that has no default of its own; ConfigError if nobody gave it."""
    if (value := getattr(settings, name)) is None:
        flag = {"max_response_len": " (--eval-max-response-len)"}.get(name, "")
        raise ConfigError(f"dataset {settings.name!r}: {name} is not set: give it{flag}")
    return value
