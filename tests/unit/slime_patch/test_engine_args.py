"""Arguments of the eval servers: inherited where they fit, refused where they cannot."""

from __future__ import annotations

import pytest

from live_eval.errors import ConfigError
from slime_patch.engine_args import device_of, dtype_of, engine_args, flags_with_values


def args_of(line: str, own: str = "", *, rollout: int = 1, per_engine: int = 1) -> str:
    words = engine_args(
        line.split(), own.split(), rollout_gpus_per_engine=rollout, gpus_per_engine=per_engine
    )
    return " ".join(words)


def test_values_may_follow_an_equals_sign_or_be_many() -> None:
    words = ["--sglang-a=1", "--lr", "2", "--sglang-b", "3", "4", "--sglang-c", "--x"]
    assert list(flags_with_values(words, "--sglang-")) == [("a", ["1"]), ("b", ["3", "4"]), ("c", [])]


def test_eval_engines_are_set_up_as_the_rollout_engines_are() -> None:
    assert args_of("--lr 1 --sglang-attention-backend fa3 --sglang-disable-cuda-graph --colocate") == (
        "--trust-remote-code --attention-backend fa3 --disable-cuda-graph"
    )


def test_slimes_own_settings_are_not_the_servers() -> None:
    assert args_of("--sglang-server-concurrency 4 --sglang-router-port 1 --sglang-config x.yaml") == (
        "--trust-remote-code"
    )


def test_the_users_own_words_take_the_place_of_inherited_ones() -> None:
    assert (
        args_of("--sglang-context-length 9", "--context-length 5") == "--trust-remote-code --context-length 5"
    )


@pytest.mark.parametrize(
    "line", ["--sglang-ep-size 8", "--sglang-mem-fraction-static 0.7", "--sglang-enable-dp-attention"]
)
def test_what_belongs_to_a_size_of_engine_is_refused_at_another(line: str) -> None:
    with pytest.raises(ConfigError, match=r"8 GPUs, and an eval engine has 2: give --eval-sglang-"):
        args_of(line, rollout=8, per_engine=2)


def test_it_passes_at_the_same_size_and_with_a_value_of_its_own() -> None:
    assert args_of("--sglang-ep-size 8", rollout=8, per_engine=8) == "--trust-remote-code --ep-size 8"
    assert args_of("--sglang-ep-size 8", "--ep-size 2", rollout=8, per_engine=2) == (
        "--trust-remote-code --ep-size 2"
    )


def test_device_and_dtype_have_places_of_their_own() -> None:
    line = ["--sglang-device", "cpu", "--sglang-dtype", "auto"]
    assert device_of(line, []) == "cpu"
    assert device_of(line, ["--device", "cuda"]) == "cuda"
    assert dtype_of(line, []) is None
    assert dtype_of(line, ["--dtype", "float16"]) == "float16"
    assert args_of(" ".join(line), "--device cuda") == "--trust-remote-code"
