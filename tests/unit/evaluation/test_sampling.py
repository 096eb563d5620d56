from __future__ import annotations

from typing import Any

import pytest

from live_eval.errors import ConfigError
from live_eval.evaluation.sampling import SamplingParams


def test_temperature_zero_is_the_default_and_is_sent_as_it_is() -> None:
    assert SamplingParams().for_sample("a")["temperature"] == 0.0


def test_all_parameters_reach_the_engine_under_its_names() -> None:
    params = SamplingParams(
        temperature=0.7, top_p=0.9, top_k=40, max_new_tokens=5, stop=("\n",), ignore_eos=True, seed=1
    ).for_sample("a")
    assert params.pop("sampling_seed") >= 0
    assert params == {
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "max_new_tokens": 5,
        "stop": ["\n"],
        "ignore_eos": True,
    }


def test_what_one_request_does_to_its_parameters_reaches_no_other() -> None:
    params = SamplingParams(stop=("x",))
    first = params.for_sample("a")
    first["temperature"] = 1.0
    first["stop"].append("y")
    assert params.for_sample("a") == SamplingParams(stop=("x",)).for_sample("a")


def test_seeds_differ_by_sample_and_repeat_for_the_same_one() -> None:
    params = SamplingParams(temperature=1.0, seed=5)
    seeds = [params.for_sample(f"row\n{i}")["sampling_seed"] for i in range(50)]
    assert len(set(seeds)) == 50
    assert seeds == [params.for_sample(f"row\n{i}")["sampling_seed"] for i in range(50)]
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert "sampling_seed" not in SamplingParams().for_sample("row")


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_k": 0},
        {"top_k": -2},
        {"max_new_tokens": 0},
        {"stop": "abc"},
        {"stop": ("",)},
    ],
)
def test_a_value_out_of_range_is_refused_by_name(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        SamplingParams(**bad)
