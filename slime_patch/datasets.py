"""slime's eval datasets as live-eval's eval sets.

Owns which of slime's settings carry over and which are refused, with the reason. Reads the dataset
configurations that slime has resolved (--eval-prompt-data, or --eval-config with its defaults and
overrides), and what stands in the file's section `live_eval`. live-eval's runner reads the files itself;
for slime's own eval function `prepare` leaves a record of the rows.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from live_eval.errors import ConfigError
from live_eval.evaluation.datasets import EXACT_MATCH, EvalSetConfig
from live_eval.evaluation.eval_config import eval_set, file_extras, needed, sampling_of, without_nulls
from live_eval.evaluation.eval_settings import DatasetSettings
from live_eval.evaluation.sampling import SamplingParams
from live_eval.evaluation.set_config import REMOTE

if TYPE_CHECKING:
    from live_eval.evaluation.eval_extras import Extras

REWARD_FUNCTION = "slime_patch.reward.reward"
STOCK_EVAL = "slime.rollout.sglang_rollout.generate_rollout"

NOT_SAMPLED = {
    "multimodal_keys": "live-eval's runner evaluates text only; use --eval-runner slime",
    "custom_generate_function_path": "live-eval's runner asks the engines directly; a generate function of "
    "your own needs --eval-runner slime",
    "app_service": "live-eval's runner asks the engines directly; an app service needs --eval-runner slime",
    "message_processor": "it needs --eval-runner slime",
    "reward_model": "give the dataset an rm_type or custom_rm_path, or use --eval-runner slime",
    "remote_environment": "it needs --eval-runner slime",
}
"""Fields of slime's EvalDatasetConfig that would make another measurement than the user asked for."""

NOT_FOR_JOB = {
    "custom_generate_function_path": "live-eval's runner asks the engines directly and would measure "
    "something else; use --eval-runner slime",
    "rollout_sample_hook_path": "live-eval's runner applies no sample hooks; use --eval-runner slime",
    "custom_eval_rollout_log_function_path": "live-eval's runner does not log through slime; leave it out, "
    "or use --eval-runner slime",
}
"""slime's arguments of which the same is true."""

FOR_ANY_RUNNER = ("eval_every", "priority", "timeout_s", "min_coverage", "pass_threshold")
"""Settings of the section `live_eval` that hold for slime's own eval function too."""

EARLY_ENDS = ("min_eval_samples", "eval_early_stop_remaining", "eval_early_stop_idle_timeout")
"""Fields that slime declares and never reads; live-eval's runner does."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetPlan:
    """One dataset: how slime reads it, and how live-eval evaluates it."""

    name: str
    path: str
    """As slime takes it: .jsonl or .parquet, with an optional slice as in `file.jsonl@[0:100]`."""
    input_key: str
    label_key: str | None
    tool_key: str | None = None
    metadata_key: str | None = "metadata"
    apply_chat_template: bool = False
    apply_chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    max_prompt_tokens: int | None = None
    metadata_overrides: dict[str, Any] = field(default_factory=dict)
    rm_type: str | None = None
    """One of slime's rules; None with `custom_rm_path` None means exact match."""
    custom_rm_path: str | None = None
    reward_key: str | None = None
    n: int = 1
    sampling: SamplingParams = field(default_factory=SamplingParams)
    timeout_s: float | None = None
    extras: dict[str, Any] = field(default_factory=dict)
    """Of the file's section `live_eval`, those that are set."""
    own: EvalSetConfig | None = None
    """How live-eval's runner reads and evaluates it; None where slime's own eval function evaluates."""

    @property
    def by_slime(self) -> bool:
        """Whether slime's eval function evaluates; the rows are then for the record, not for the engines."""
        return self.own is None

    @property
    def by_exact_match(self) -> bool:
        """Whether the answer itself is compared with the label."""
        return self.rm_type is None and self.custom_rm_path is None

    def eval_set(self, prepared: Path) -> EvalSetConfig:
        """The eval set; `prepared` is the file that `prepare` made, where slime's function evaluates."""
        if self.own is not None:
            return self.own
        config = EvalSetConfig(
            name=self.name,
            path=prepared,
            prompt_key="prompt",
            label_key="label" if self.label_key is not None else None,
            n=self.n,
            sampling=self.sampling,
            reward=EXACT_MATCH if self.by_exact_match else REWARD_FUNCTION,
            reward_key=None if self.by_exact_match else self.reward_key,
            timeout_s=self.timeout_s,
        )
        return replace(config, **{name: self.extras[name] for name in FOR_ANY_RUNNER if name in self.extras})


def plan_datasets(args: Namespace, *, by_slime: bool = False) -> tuple[DatasetPlan, ...]:
    """All eval datasets of a job; ConfigError names the setting that cannot carry over, and why.

    `by_slime`: slime's own eval function evaluates, and all that it understands carries over.
    """
    datasets = getattr(args, "eval_datasets", None) or []
    if not datasets:
        raise ConfigError(
            "there is nothing to evaluate on: give --eval-prompt-data NAME PATH or --eval-config"
        )
    if getattr(args, "group_rm", False):
        raise ConfigError("--group-rm: rewards of whole groups cannot be used in eval (in slime neither)")
    extras = file_extras(getattr(args, "eval_config", None), [dataset.name for dataset in datasets])
    every = [_settings(dataset, args) for dataset in datasets]
    plans = tuple(_plan(settings, args, extras[settings.name]) for settings in every)
    if by_slime:
        for dataset in datasets:
            _warn_of_early_ends(dataset)
        return plans
    _check_job(args)
    return tuple(
        replace(plan, own=_own(settings, plan, extras[plan.name], args))
        for settings, plan in zip(every, plans, strict=True)
    )


def _settings(dataset: Any, args: Namespace) -> DatasetSettings:
    """The dataset's values as slime uses them in an eval; slime takes the file's without looking at their
    kinds, so ConfigError for one that is of another kind than it must be."""
    names = [each.name for each in fields(DatasetSettings)]
    given = {name: value for name in names if (value := getattr(dataset, name, None)) is not None}
    unread = {name: given.pop(name) for name in (*NOT_SAMPLED, "metadata_overrides") if name in given}
    try:
        settings = replace(msgspec.convert(given, DatasetSettings), **unread)
    except msgspec.ValidationError as error:
        raise ConfigError(f"dataset {dataset.name!r}: {error}") from error
    return without_nulls(settings, vars(args))


def _own(settings: DatasetSettings, plan: DatasetPlan, extras: Extras, args: Namespace) -> EvalSetConfig:
    """The shared way from slime's settings to an eval set, with slime's own rewards."""
    _check_dataset(settings, plan)
    reward = None if plan.by_exact_match else REWARD_FUNCTION
    config = eval_set(settings, extras, vars(args), reward=reward)
    if config.reward_mode == "batch":
        raise ConfigError(
            f"dataset {plan.name!r}: reward_mode batch is for evals without slime, which hands a reward "
            "function one sample: use single or concurrent"
        )
    if reward is not None and plan.custom_rm_path is None and plan.rm_type == REMOTE:
        config = replace(config, reward_mode="concurrent")
    if reward is None:
        config = replace(config, row_function=REWARD_FUNCTION)
    if getattr(args, "sglang_enable_deterministic_inference", False) and config.sampling.seed is None:
        config = replace(config, sampling=replace(config.sampling, first_seed=args.rollout_seed))
    return config


def _warn_of_early_ends(dataset: Any) -> None:
    unread = [name for name in EARLY_ENDS if getattr(dataset, name, None) is not None]
    if unread:
        logger.warning(
            "dataset %s: %s mean nothing to slime's eval function; use --eval-runner live-eval",
            dataset.name,
            ", ".join(unread),
        )


def _check_job(args: Namespace) -> None:
    for name, reason in NOT_FOR_JOB.items():
        if value := getattr(args, name, None):
            raise ConfigError(
                f"--{name.replace('_', '-')} {value} does not carry over to live eval: {reason}"
            )
    function = getattr(args, "eval_function_path", None)
    if function not in (None, STOCK_EVAL, getattr(args, "rollout_function_path", None)):
        raise ConfigError(
            f"--eval-function-path {function} does not carry over to live-eval's runner, which samples as "
            f"slime's stock eval does: leave it out, give {STOCK_EVAL}, or use --eval-runner slime"
        )


def _check_dataset(settings: DatasetSettings, plan: DatasetPlan) -> None:
    for name, reason in NOT_SAMPLED.items():
        if (value := getattr(settings, name)) is not None:
            raise ConfigError(f"dataset {settings.name!r}: {name} is {value!r}: {reason}")
    if plan.by_exact_match and plan.label_key is None:
        raise ConfigError(
            f"dataset {plan.name!r} has no reward: give --rm-type or --custom-rm-path, or "
            "--eval-label-key to compare answers with labels"
        )


def _plan(settings: DatasetSettings, args: Namespace, extras: Extras) -> DatasetPlan:
    rm_type = settings.metadata_overrides.get("rm_type") or settings.rm_type or args.rm_type or None
    return DatasetPlan(
        name=settings.name,
        path=settings.path,
        input_key=needed(settings, "input_key"),
        label_key=settings.label_key,
        tool_key=settings.tool_key,
        metadata_key=settings.metadata_key,
        apply_chat_template=bool(settings.apply_chat_template),
        apply_chat_template_kwargs=dict(settings.apply_chat_template_kwargs or {}),
        max_prompt_tokens=getattr(args, "eval_max_prompt_len", None),
        metadata_overrides=dict(settings.metadata_overrides),
        rm_type=rm_type,
        custom_rm_path=settings.custom_rm_path,
        reward_key=getattr(args, "eval_reward_key", None),
        n=needed(settings, "n_samples_per_eval_prompt"),
        sampling=sampling_of(settings),
        timeout_s=settings.eval_task_timeout,
        extras=extras.given(),
    )
