"""slime's eval datasets: what carries over, and what is refused with the reason."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from fakes.slime_standins import EvalDatasetConfig, Parse

from live_eval.errors import ConfigError
from slime_patch.datasets import DatasetPlan, plan_datasets


def plan(parse: Parse, dataset: EvalDatasetConfig, **changes: Any) -> DatasetPlan:
    args, _ = parse("", eval_datasets=[dataset], **changes)
    return plan_datasets(args)[0]


def test_slimes_overrides_reach_the_eval_set(parse: Parse) -> None:
    dataset = EvalDatasetConfig(
        name="aime", path="a.jsonl@[0:9]", temperature=0.6, top_p=0.9, max_response_len=64,
        n_samples_per_eval_prompt=8, stop=["END"],
    )  # fmt: skip
    found = plan(parse, dataset, rm_type="math", eval_max_prompt_len=100, eval_reward_key="acc")
    config = found.eval_set(Path("/run/data/eval-0.jsonl"))
    assert (config.name, config.n, config.reward, config.reward_key) == (
        "aime", 8, "slime_patch.reward.reward", "acc",
    )  # fmt: skip
    assert (config.sampling.temperature, config.sampling.top_p, config.sampling.stop) == (0.6, 0.9, ("END",))
    assert config.sampling.max_new_tokens == 64
    assert (found.path, found.max_prompt_tokens) == ("a.jsonl@[0:9]", 100)


def test_eval_may_be_greedy_while_rollouts_are_not(parse: Parse) -> None:
    dataset = EvalDatasetConfig(name="a", path="a.jsonl", temperature=0.0, top_p=1.0)
    args, _ = parse("", eval_datasets=[dataset], rollout_temperature=1.0, rollout_top_p=0.9)
    before = copy.deepcopy(vars(args))
    (found,) = plan_datasets(args)
    assert found.eval_set(Path("x")).sampling.temperature == 0.0
    assert vars(args) == before


def test_answers_are_compared_with_labels_where_slime_has_no_rule(parse: Parse) -> None:
    assert plan(parse, EvalDatasetConfig(name="a", path="a")).eval_set(Path("x")).reward == "exact_match"


def test_a_rows_own_rule_is_slimes_too(parse: Parse) -> None:
    config = plan(parse, EvalDatasetConfig(name="a", path="a"), eval_reward_key="acc").eval_set(Path("x"))
    assert (config.reward, config.reward_by_row) == ("exact_match", True)
    assert (config.row_function, config.reward_key) == ("slime_patch.reward.reward", "acc")


def test_neither_rule_nor_label_is_refused(parse: Parse) -> None:
    with pytest.raises(ConfigError, match="has no reward: give --rm-type"):
        plan(parse, EvalDatasetConfig(name="a", path="a", label_key=None))


def test_a_datasets_own_rule_comes_first(parse: Parse) -> None:
    assert plan(parse, EvalDatasetConfig(name="a", path="a", rm_type="f1"), rm_type="math").rm_type == "f1"


def test_a_reward_function_needs_no_label(parse: Parse) -> None:
    dataset = EvalDatasetConfig(name="a", path="a", label_key=None, custom_rm_path="my.rm")
    assert plan(parse, dataset).eval_set(Path("x")).label_key is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("multimodal_keys", {"image": "i"}),
        ("custom_generate_function_path", "a.b"),
        ("app_service", "http://x"),
        ("reward_model", {}),
    ],
)
def test_a_setting_that_would_measure_something_else_is_refused(parse: Parse, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"dataset 'a': {name} is"):
        plan(parse, EvalDatasetConfig(name="a", path="a", **{name: value}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("custom_generate_function_path", "a.b"),
        ("rollout_sample_hook_path", ["a.b"]),
        ("custom_eval_rollout_log_function_path", "a.b"),
        ("eval_function_path", "my.eval"),
    ],
)
def test_so_is_one_of_the_job(parse: Parse, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} .* does not carry over to live.eval"):
        plan(parse, EvalDatasetConfig(name="a", path="a"), **{name: value})


def test_rewards_of_groups_are_refused(parse: Parse) -> None:
    with pytest.raises(ConfigError, match="--group-rm"):
        plan(parse, EvalDatasetConfig(name="a", path="a"), group_rm=True)


def test_slimes_own_eval_function_takes_all_that_it_understands(parse: Parse) -> None:
    dataset = EvalDatasetConfig(
        name="a", path="a", label_key=None, stop_token_ids=[1], app_service="http://x"
    )
    args, _ = parse(
        "", eval_datasets=[dataset], eval_function_path="my.eval", rollout_sample_hook_path=["a.b"]
    )
    (found,) = plan_datasets(args, by_slime=True)
    assert found.by_slime


def test_the_rollout_function_that_slime_falls_back_to_is_no_eval_function(parse: Parse) -> None:
    path = "slime.rollout.fully_async_rollout.generate_rollout_fully_async"
    dataset = EvalDatasetConfig(name="a", path="a")
    assert plan(parse, dataset, rollout_function_path=path, eval_function_path=path).name == "a"


@pytest.mark.parametrize("by_slime", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("temperature", "0.6", "got `str` - at `\\$.temperature`"),
        ("temperature", None, "temperature is not set"),
        ("n_samples_per_eval_prompt", "4", "got `str`"),
        ("n_samples_per_eval_prompt", None, "n_samples_per_eval_prompt is not set"),
        ("max_response_len", None, "max_response_len is not set"),
        ("stop_token_ids", "5", "got `str`"),
        ("input_key", None, "input_key is not set"),
        ("path", 7, "got `int` - at `\\$.path`"),
    ],
)
def test_what_slime_takes_without_looking_is_an_error_that_names_it(
    parse: Parse, name: str, value: Any, message: str, by_slime: bool
) -> None:
    args, _ = parse("", eval_datasets=[EvalDatasetConfig(**{"name": "a", "path": "a", name: value})])
    with pytest.raises(ConfigError, match=f"dataset 'a': .*{message}"):
        plan_datasets(args, by_slime=by_slime)


def test_a_null_is_what_slime_makes_of_it_when_it_evaluates(parse: Parse) -> None:
    dataset = EvalDatasetConfig(name="a", path="a", metadata_key=None)
    args, _ = parse(
        "", eval_datasets=[dataset], rollout_stop="\n\n", rollout_stop_token_ids=[3],
        apply_chat_template=True, apply_chat_template_kwargs={"enable_thinking": False},
        custom_rm_path="my.rm",
    )  # fmt: skip
    for by_slime in (False, True):
        found = plan_datasets(args, by_slime=by_slime)[0]
        sampling = found.eval_set(Path("x")).sampling
        assert (sampling.stop, sampling.stop_token_ids) == (("\n\n",), (3,))
        assert (found.apply_chat_template, found.apply_chat_template_kwargs["enable_thinking"]) == (
            True,
            False,
        )
        assert (found.custom_rm_path, found.by_exact_match, found.metadata_key) == ("my.rm", False, None)


def test_values_out_of_range_name_themselves(parse: Parse) -> None:
    with pytest.raises(ConfigError, match=r"top_p is 1\.5"):
        plan(parse, EvalDatasetConfig(name="a", path="a", top_p=1.5))


def test_what_slime_samples_with_is_what_live_eval_samples_with(parse: Parse) -> None:
    dataset = EvalDatasetConfig(
        name="a", path="a", stop_token_ids=[7], min_new_tokens=2, repetition_penalty=1.1, rm_type="f1",
        metadata_overrides={"level": 3},
    )  # fmt: skip
    found = plan(parse, dataset, sglang_enable_deterministic_inference=True, rollout_seed=42)
    config = found.eval_set(Path("x"))
    sampling = config.sampling
    assert (sampling.stop_token_ids, sampling.min_new_tokens, sampling.repetition_penalty) == ((7,), 2, 1.1)
    assert (sampling.first_seed, config.special_tokens) == (42, False)
    assert config.metadata_overrides == {"rm_type": "f1", "level": 3}


def test_the_files_own_section_reaches_either_runner(parse: Parse, tmp_path: Path) -> None:
    file = tmp_path / "eval.yaml"
    file.write_text(
        "eval: {datasets: [{name: a, path: a}]}\n"
        "live_eval: {datasets: {a: {eval_every: 3, priority: 2, timeout_s: 9, concurrency: 4}}}\n"
    )
    dataset = EvalDatasetConfig(name="a", path="a")
    args, _ = parse("", eval_datasets=[dataset], eval_config=str(file))
    for by_slime in (False, True):
        config = plan_datasets(args, by_slime=by_slime)[0].eval_set(Path("x"))
        assert (config.eval_every, config.priority, config.timeout_s) == (3, 2, 9.0)
        assert config.concurrency == (None if by_slime else 4)
    file.write_text("live_eval: {datasets: {b: {priority: 1}}}\n")
    with pytest.raises(ConfigError, match=r"eval\.yaml: live_eval\.datasets: b is no dataset"):
        plan_datasets(args)


def test_what_slimes_eval_function_passes_over_is_said(
    parse: Parse, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = EvalDatasetConfig(name="a", path="a")
    dataset.min_eval_samples = 3  # type: ignore[attr-defined]
    args, _ = parse("", eval_datasets=[dataset])
    plan_datasets(args)
    assert not caplog.records
    plan_datasets(args, by_slime=True)
    assert "dataset a: min_eval_samples mean nothing to slime's eval function" in caplog.text


def test_a_reward_model_is_asked_for_many_samples_at_a_time(parse: Parse, tmp_path: Path) -> None:
    def mode(**changes: Any) -> str:
        return plan(parse, EvalDatasetConfig(name="a", path="a", **changes)).eval_set(Path("x")).reward_mode

    assert mode(rm_type="remote_rm") == "concurrent"
    assert mode(rm_type="math") == mode(custom_rm_path="my.rm", rm_type="remote_rm") == "single"
    file = tmp_path / "eval.yaml"
    file.write_text("live_eval: {defaults: {reward_mode: batch}}\n")
    args, _ = parse("", eval_datasets=[EvalDatasetConfig(name="a", path="a")], eval_config=str(file))
    with pytest.raises(ConfigError, match="reward_mode batch is for evals without slime"):
        plan_datasets(args)
