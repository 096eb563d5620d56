"""Datasets of a command line: mistakes are found before anything is made, in the words of who made them."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from live_eval import cli
from live_eval.commands.eval_data import datasets_of
from live_eval.errors import ConfigError, DatasetError
from live_eval.evaluation.eval_options import add_eval_options

LENGTH = ("--eval-max-response-len", "4")


def found(*words: str) -> str:
    """The one dataset's name, or what is wrong."""
    parser = argparse.ArgumentParser()
    add_eval_options(parser)
    try:
        (config,) = datasets_of(parser.parse_args([*words, *LENGTH]))
    except (ConfigError, DatasetError) as error:
        return str(error)
    return config.name


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "rev.jsonl"
    path.write_text('{"prompt": "ab", "label": "ba"}\n{"prompt": "cd", "label": "dc"}\n')
    return str(path)


def test_a_wrong_field_is_told_with_the_flag_that_names_it(data: str) -> None:
    given = ("--eval-prompt-data", "rev", data)
    keys = ("--input-key", "prompt", "--label-key", "label")
    assert found(*given, *keys) == "rev"
    assert found(*given, *keys, "--eval-max-prompt-len", "1") == "rev", "no tokenizer is needed to see it"
    where = f"dataset 'rev': {data}:1 has no field"
    assert found(*given, *keys[2:]) == f"{where} 'input': give --input-key one of label, prompt"
    assert found(*given, "--eval-input-key", "q", *keys[2:]).startswith(f"{where} 'q': give --eval-input-key")
    assert found(*given, *keys[:2], "--label-key", "l") == (
        f"{where} 'l': give --label-key one of label, prompt"
    )


def test_what_the_file_said_is_told_with_the_files_name(data: str, tmp_path: Path) -> None:
    path = tmp_path / "eval.yaml"
    path.write_text(f"datasets: [{{name: rev, path: {data}, input_key: q}}]\n")
    told = found("--eval-config", str(path), "--label-key", "label")
    assert told.endswith("has no field 'q': give input_key one of label, prompt")
    path.write_text(f"datasets: [{{name: rev, path: {data}, input_key: prompt}}]\n")
    told = found("--eval-config", str(path), "--label-key", "l")
    assert told.endswith("has no field 'l': give --label-key one of label, prompt")


def test_a_file_that_is_not_there_and_a_name_without_one(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.jsonl")
    key = ("--label-key", "label")
    assert (
        found("--eval-prompt-data", "rev", gone, *key) == f"--eval-prompt-data rev: there is no file {gone}"
    )
    assert found("--eval-prompt-data", "rev") == "--eval-prompt-data rev: give a name and a file: NAME PATH"


def test_a_chat_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text('{"input": [{"role": "user", "content": "hi"}], "label": "ho"}\n')
    given = ("--eval-prompt-data", "chat", str(path), "--label-key", "label")
    assert found(*given, "--apply-chat-template") == "chat"
    assert "set apply_chat_template" in found(*given)


def test_serve_without_a_model_says_so_before_all_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--out", "nowhere", "--eval-config", "gone.yaml"]) == 2
    assert "give --base PATH" in capsys.readouterr().err
    assert not Path("nowhere").exists()


def test_a_root_that_is_not_there_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["serve", "--out", "nowhere", "--checkpoint-root", "/nope"])
    assert "/nope is no directory" in capsys.readouterr().err
