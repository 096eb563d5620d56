"""slime's eval configuration: effective values, what is refused, and what live-eval adds."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from live_eval.errors import ConfigError
from live_eval.evaluation.eval_config import load, load_options, load_prompt_data
from live_eval.evaluation.eval_options import DEFAULTS, add_eval_options
from live_eval.evaluation.eval_settings import read_eval_config, read_prompt_data

if TYPE_CHECKING:
    from live_eval.evaluation.set_config import EvalSetConfig

DATA = Path(__file__).parent / "data"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "eval.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def one(tmp_path: Path, entry: str, *, more: str = "", **options: Any) -> EvalSetConfig:
    text = (
        f"eval:\n  datasets:\n    - {{name: a, path: a.jsonl, max_response_len: 8, rm_type: math, {entry}}}\n"
    )
    (config,) = load(written(tmp_path, text + more), {"label_key": "label", **options})
    return config


# --- effective values -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["multi_task", "mapping", "everything"])
def test_effective_values_are_those_of_the_frozen_table(name: str) -> None:
    """The table was made by slime's own code; tests/slime makes it again and compares."""
    frozen = msgspec.json.decode((DATA / "slime_eval_values.json").read_bytes())[name]
    found = read_eval_config(DATA / f"{name}.yaml", frozen["options"]).datasets
    assert [asdict(settings) for settings in found] == frozen["datasets"]


def test_an_entry_comes_before_defaults_and_these_before_options(tmp_path: Path) -> None:
    text = """
eval:
  defaults: {temperature: 0.5, top_p: 0.9, rm_type: f1}
  datasets:
    - {name: a, path: a, temperature: 0.1}
    - {name: b, path: b, top_p: null, rm_type: math}
"""
    options = {"eval_temperature": 0.9, "eval_top_p": 0.8, "eval_top_k": 7, "rollout_top_k": 9}
    first, second = read_eval_config(written(tmp_path, text), options).datasets
    assert (first.temperature, first.top_p, first.top_k, first.rm_type) == (0.1, 0.9, 7, "f1")
    assert (second.temperature, second.top_p, second.rm_type) == (0.5, None, "math"), "null counts as given"


def test_evals_options_come_before_those_of_rollouts_and_greedy_is_right(tmp_path: Path) -> None:
    config = one(tmp_path, "", eval_temperature=0.0, rollout_temperature=1.0, rollout_stop=["</s>"])
    assert (config.sampling.temperature, config.sampling.stop) == (0.0, ("</s>",))
    assert one(tmp_path, "", rollout_temperature=0.7).sampling.temperature == 0.7


def test_a_null_is_what_slime_makes_of_it_when_it_evaluates(tmp_path: Path) -> None:
    """slime looks at the command line once more, for these and no others."""
    nulls = (
        "stop: null, stop_token_ids: null, min_new_tokens: null, apply_chat_template: null, "
        "apply_chat_template_kwargs: null, custom_rm_path: null, metadata_key: null, tool_key: null"
    )
    config = one(
        tmp_path, nulls, rollout_stop=["X"], rollout_stop_token_ids=[7], eval_min_new_tokens=2,
        apply_chat_template=True, apply_chat_template_kwargs={"enable_thinking": False},
        custom_rm_path="my.rm", metadata_key="m", tool_key="t",
    )  # fmt: skip
    sampling = config.sampling
    assert (sampling.stop, sampling.stop_token_ids, sampling.min_new_tokens) == (("X",), (7,), 2)
    assert config.apply_chat_template and config.apply_chat_template_kwargs == {"enable_thinking": False}
    assert (config.reward, config.metadata_key, config.tool_key) == ("my.rm", None, None)
    with pytest.raises(ConfigError, match="only text is evaluated"):
        one(tmp_path, "multimodal_keys: null", multimodal_keys={"image": "images"})


def test_every_setting_reaches_the_eval_set(tmp_path: Path) -> None:
    config = one(
        tmp_path,
        "n_samples_per_eval_prompt: 4, temperature: 0.6, top_p: 0.9, top_k: 20, min_new_tokens: 2, "
        "stop: [X], stop_token_ids: [7], repetition_penalty: 1.1, skip_special_tokens: true, "
        "no_stop_trim: false, "
        "input_key: q, label_key: a, tool_key: t, metadata_key: m, apply_chat_template: true, "
        "apply_chat_template_kwargs: {enable_thinking: false}, metadata_overrides: {level: 3}, "
        "eval_task_timeout: 60, min_eval_samples: 3, eval_early_stop_remaining: 2, "
        "eval_early_stop_idle_timeout: 5",
        eval_max_prompt_len=100,
    )
    sampling = config.sampling
    assert (config.n, sampling.temperature, sampling.top_p, sampling.top_k) == (4, 0.6, 0.9, 20)
    assert (sampling.max_new_tokens, sampling.min_new_tokens) == (8, 2)
    assert (sampling.stop, sampling.stop_token_ids, sampling.repetition_penalty) == (("X",), (7,), 1.1)
    assert (sampling.skip_special_tokens, sampling.no_stop_trim) == (True, False)
    assert (config.prompt_key, config.label_key, config.tool_key, config.metadata_key) == ("q", "a", "t", "m")
    assert config.apply_chat_template and config.apply_chat_template_kwargs == {"enable_thinking": False}
    assert config.metadata_overrides == {"rm_type": "math", "level": 3}
    assert (config.timeout_s, config.min_samples) == (60.0, 3)
    assert (config.early_stop_remaining, config.early_stop_idle_s) == (2, 5.0)
    assert (config.max_prompt_tokens, config.drop_long_prompts, config.special_tokens) == (100, True, False)


def test_what_slime_leaves_to_its_engines_is_sent_as_slime_sends_it(tmp_path: Path) -> None:
    params = one(tmp_path, "temperature: 0").sampling.for_sample("x")
    assert params == {
        "temperature": 0.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 8, "ignore_eos": False,
        "no_stop_trim": True, "spaces_between_special_tokens": False,
    }  # fmt: skip


def test_answers_come_without_special_tokens_unless_the_file_wants_them(tmp_path: Path) -> None:
    assert one(tmp_path, "").sampling.skip_special_tokens
    kept = one(tmp_path, "skip_special_tokens: false").sampling
    assert kept.for_sample("x")["skip_special_tokens"] is False


def test_a_slime_jobs_option_counts_but_not_against_an_exact_match(tmp_path: Path) -> None:
    """slime's rewards get slime's answers; a label can never equal an answer with its end token."""
    assert not one(tmp_path, "", rollout_skip_special_tokens=False).sampling.skip_special_tokens
    text = "datasets: [{name: a, path: a, max_response_len: 8, label_key: l}]\n"
    (config,) = load(written(tmp_path, text), {"rollout_skip_special_tokens": False})
    assert config.reward == "exact_match" and config.sampling.skip_special_tokens


def test_a_setting_that_nobody_gave_is_said_once_with_its_flag() -> None:
    with pytest.raises(ConfigError) as caught:
        load_prompt_data(["a", "a.jsonl"], {"label_key": "l"})
    text = "dataset 'a': max_response_len is not set: give it (--eval-max-response-len)"
    assert str(caught.value) == text


# --- rewards ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "options", "expected"),
    [
        ("rm_type: math", {}, ("math", False, None)),
        ("rm_type: null", {"rm_type": "f1"}, ("f1", True, None)),
        ("rm_type: null", {}, ("exact_match", True, None)),
        ("rm_type: boxed_f1", {"eval_reward_key": "acc"}, ("boxed_f1", False, None)),
        ("rm_type: null", {"reward_key": "score"}, ("exact_match", True, "score")),
        ("rm_type: null", {"reward_key": "score", "rm_type": "dapo"}, ("dapo", True, "score")),
        ("rm_type: dapo", {"reward_key": "score"}, ("dapo", False, "score")),
        ("rm_type: dapo", {"reward_key": "score", "eval_reward_key": "acc"}, ("dapo", False, "acc")),
        ("metadata_overrides: {rm_type: f1}", {}, ("f1", False, None)),
        ("custom_rm_path: my.rm", {"eval_reward_key": "acc"}, ("my.rm", False, "acc")),
        ("rm_type: f1", {"custom_rm_path": "my.rm"}, ("my.rm", False, None)),
    ],
)
def test_a_function_comes_before_the_datasets_rule_a_rows_and_the_general_one(
    tmp_path: Path, entry: str, options: dict[str, Any], expected: tuple[str, bool, str | None]
) -> None:
    text = f"datasets:\n  - {{name: a, path: a, max_response_len: 8, label_key: l, {entry}}}\n"
    (config,) = load(written(tmp_path, text), options)
    assert (config.reward, config.reward_by_row, config.reward_key) == expected


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("rm_type: nope", "rm_type 'nope' is no rule: give one of math, .* or a function"),
        ("rm_type: ifbench", "fetches its checks from the network"),
        ("rm_type: dapo", "give reward_key"),
        ("rm_type: remote_rm", "needs an address"),
        ("multimodal_keys: {image: images}", "only text is evaluated"),
        ("custom_generate_function_path: my.generate", "needs slime's eval function"),
        ("temperature: hot", "Expected `float"),
        ("temperature: -1", "temperature is -1"),
        ("max_response_len: null", "max_response_len is not set"),
        ("min_eval_samples: 0", "min_samples is 0"),
        ("eval_early_stop_remaining: 3", "only work together"),
        ("temperture: 0", "unknown temperture"),
        ("eval_every: 2", "eval_every belongs into the section live_eval"),
        ("metadata_overrides: [1]", "give a mapping"),
        ("input_key: null", "input_key is not set"),
        ("eval_task_timeout: .inf", "timeout_s is inf"),
    ],
)
def test_what_cannot_be_says_so_with_the_dataset(tmp_path: Path, entry: str, message: str) -> None:
    fixed = {"name": "a", "path": "a", "max_response_len": "8", "label_key": "l"}
    words = [f"{key}: {value}" for key, value in fixed.items() if not entry.startswith(key)]
    text = f"eval:\n  datasets:\n    - {{{', '.join([*words, entry])}}}\n"
    with pytest.raises(ConfigError, match=f"dataset 'a'.*{message}"):
        load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "a mapping with `eval` is needed"),
        ("eval: 3\n", "give a mapping with `datasets`"),
        ("eval: {defaults: {temperature: 0}}\n", r"eval\.datasets is missing"),
        ("eval: {datasets: [{path: a}]}\n", "needs a name and a path"),
        ("eval: {datasets: [3]}\n", "give a mapping"),
        ("eval: {defaults: {nope: 1}, datasets: [{name: a, path: a}]}\n", r"eval\.defaults: unknown nope"),
        ("eval: {datasets: [{name: a, path: a}, {name: a, path: b}]}\n", "two of one name|of one name: a"),
        ("eval: {datasets: {a: {path: '${nowhere}'}}}\n", "nowhere"),
        ("eval: [\n", "while parsing|expected"),
        ("datasets: {a: {path: a}}\nlive_eval: {datasets: {b: {priority: 1}}}\n", "b is no dataset"),
        ("datasets: {a: {path: a}}\nlive_eval: {datasets: {a: {prio: 1}}}\n", "unknown field `prio`"),
        ("datasets: {a: {path: a}}\nlive_eval: 3\n", "give a mapping"),
        ("datasets: {a: {path: a}}\nlive_eval: {datasets: {a: 5}}\n", "'a': this is 5: give a mapping"),
        (
            "datasets: {a: {path: a}}\nlive_eval: {datasets: {a: [1]}}\n",
            r"'a': this is \[1\]: give",
        ),
    ],
)
def test_a_file_that_cannot_be_read_says_where(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?s)(eval\.yaml.*)?({message})"):
        load(written(tmp_path, text), {"label_key": "l", "eval_max_response_len": 8})
    with pytest.raises(ConfigError, match=r"gone\.yaml"):
        load(tmp_path / "gone.yaml")


# --- beyond slime -----------------------------------------------------------------------


def test_the_own_section_holds_what_slime_has_no_name_for(tmp_path: Path) -> None:
    text = """
eval:
  defaults: {max_response_len: 8, rm_type: math, label_key: l, eval_task_timeout: 60}
  datasets:
    a: {path: a.jsonl}
    b: {path: b.jsonl}
    c: {path: c.jsonl}
live_eval:
  defaults: {min_coverage: 1.0, id_key: null, seed: 5}
  datasets:
    b: {eval_every: 3, priority: 2, timeout_s: 9, concurrency: 16, min_coverage: 0.5, id_key: uid}
    c: {priority: 1}
"""
    configs = load(written(tmp_path, text))
    assert [config.name for config in configs] == ["b", "c", "a"], "highest priority first"
    first, _, last = configs
    assert (first.eval_every, first.timeout_s, first.concurrency, first.min_coverage) == (3, 9.0, 16, 0.5)
    assert (first.id_key, last.id_key, last.timeout_s, last.min_coverage) == ("uid", None, 60.0, 1.0)
    assert last.sampling.seed == 5


def test_a_name_of_digits_has_its_settings_too(tmp_path: Path) -> None:
    """YAML reads a bare 2024 as a number."""
    text = (
        "datasets: [{name: '2024', path: a, max_response_len: 8, label_key: l}]\n"
        "live_eval: {datasets: {2024: {priority: 5}}}\n"
    )
    assert load(written(tmp_path, text))[0].priority == 5


# --- without a file ---------------------------------------------------------------------


def test_prompt_data_are_pairs_and_a_lone_path_is_aime() -> None:
    options = {"eval_max_response_len": 8, "rm_type": "math", "label_key": "l"}
    names = [
        (config.name, str(config.path)) for config in load_prompt_data(["a", "x", "b", "y@[0:3]"], options)
    ]
    assert names == [("a", "x"), ("b", "y@[0:3]")]
    (lone,) = read_prompt_data(["/d/a.jsonl"]).datasets
    assert (lone.name, lone.path) == ("aime", "/d/a.jsonl")
    for words in ([], ["a", "b", "c"]):
        with pytest.raises(ConfigError, match="give pairs of a name and a path"):
            load_prompt_data(words)


def test_a_file_comes_before_prompt_data_as_in_slime(tmp_path: Path) -> None:
    path = written(
        tmp_path, "datasets: {a: {path: a.jsonl, max_response_len: 8, rm_type: math, label_key: l}}\n"
    )
    (config,) = load_options({"eval_config": str(path), "eval_prompt_data": ["b", "b.jsonl"]})
    assert config.name == "a"
    with pytest.raises(ConfigError, match="nothing to evaluate on"):
        load_options({})


def test_options_of_the_command_line_have_slimes_names_and_defaults() -> None:
    parser = argparse.ArgumentParser()
    add_eval_options(parser)
    args = vars(parser.parse_args([]))
    assert set(args) - {"eval_config", "eval_prompt_data"} <= set(DEFAULTS)
    assert not any(args.values()), "what is not given is filled in later"
    words = (
        "--eval-prompt-data a a.jsonl --eval-temperature 0 --eval-max-response-len 4 --rm-type f1 "
        "--n-samples-per-eval-prompt 2 --eval-label-key l --apply-chat-template "
        '--rollout-stop-token-ids 1 2 --apply-chat-template-kwargs {"a":1}'
    )
    given = parser.parse_args(words.split())
    (config,) = load_options(vars(given))
    assert (config.n, config.sampling.temperature, config.reward, config.label_key) == (2, 0.0, "f1", "l")
    assert config.sampling.stop_token_ids == (1, 2)
    assert config.apply_chat_template_kwargs == {"a": 1}
