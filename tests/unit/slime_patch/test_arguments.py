"""Flags: registered once, unknown ones an error, the engines' own kept as text."""

from __future__ import annotations

import pytest
from fakes.slime_standins import ENGINE_FLAGS, slime_parser

from live_eval.errors import ConfigError
from slime_patch.arguments import FLAGS, add_arguments, check_flags, flag_table, our_dests


def known() -> list[str]:
    return list(add_arguments(slime_parser(), ENGINE_FLAGS)._option_string_actions)


def test_flags_have_defaults_that_change_nothing() -> None:
    args = add_arguments(slime_parser(), ENGINE_FLAGS).parse_args([])
    assert args.eval_mode == "inline"
    assert set(our_dests()) <= set(vars(args))


def test_registering_twice_is_harmless() -> None:
    parser = add_arguments(slime_parser(), ENGINE_FLAGS)
    assert add_arguments(parser, ENGINE_FLAGS) is parser


def test_a_flag_that_slime_would_ignore_is_an_error_with_a_hint() -> None:
    with pytest.raises(ConfigError, match=r"--eval-on-updat is no flag .* did you mean --eval-on-update"):
        check_flags(["--eval-on-updat", "finish"], known())


def test_a_mistyped_mode_is_an_error_too() -> None:
    with pytest.raises(ConfigError, match="did you mean --eval-mode"):
        check_flags(["--eval-moed=latest-synced"], known())


def test_flags_of_slime_and_other_words_pass() -> None:
    check_flags(
        ["--eval-interval", "5", "--eval-temperature=0", "--lr", "1", "--sglang-eval-x", "y"], known()
    )


def test_engine_flags_are_collected_as_the_servers_own_words() -> None:
    parser = add_arguments(slime_parser(), ENGINE_FLAGS)
    words = "--eval-sglang-mem-fraction-static 0.8 --eval-sglang-enable-metrics --eval-sglang-ep-size=2"
    assert parser.parse_args(words.split()).eval_sglang == [
        "--mem-fraction-static", "0.8", "--enable-metrics", "--ep-size", "2",
    ]  # fmt: skip


def test_the_table_has_every_flag() -> None:
    table = flag_table()
    assert all(f"`{flag.name}" in table for flag in FLAGS)
    assert all(line.count("|") == 4 for line in table.replace("\\|", "").splitlines())
