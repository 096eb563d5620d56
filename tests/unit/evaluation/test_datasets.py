from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.tokenizer import BOS, ChatTokenizer

from live_eval.errors import ConfigError, DatasetError
from live_eval.evaluation.datasets import EvalSet, EvalSetConfig, load_eval_sets


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "set.jsonl"
    path.write_bytes(data)
    return path


def load(tmp_path: Path, data: bytes, **config: Any) -> EvalSet:
    return EvalSet.load(EvalSetConfig(name="set", path=write(tmp_path, data), **config))


def row(prompt: str = "p", label: Any = "l", **fields: Any) -> bytes:
    return json.dumps({"prompt": prompt, "label": label, **fields}, ensure_ascii=False).encode()


# --- lines ------------------------------------------------------------------------------


def test_lines_are_split_at_newlines_only(tmp_path: Path) -> None:
    prompt = "a\u2028b\u2029c\x85d"
    loaded = load(tmp_path, row(prompt) + b"\n" + row("q") + b"\n")
    assert [r.prompt for r in loaded.rows] == [prompt, "q"]


def test_a_carriage_return_alone_ends_no_line(tmp_path: Path) -> None:
    loaded = load(tmp_path, b'{"prompt": "a",\r"label": "l"}\r\n' + row("b"))
    assert [(r.prompt, r.line) for r in loaded.rows] == [("a", 1), ("b", 2)]


def test_a_byte_order_mark_crlf_blank_lines_and_a_missing_last_newline_are_accepted(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + row("a") + b"\r\n\r\n  \n" + row("b") + b"\r\n\n" + row("c")
    loaded = load(tmp_path, data)
    assert [(r.prompt, r.line, r.row_id) for r in loaded.rows] == [
        ("a", 1, "1"),
        ("b", 4, "4"),
        ("c", 6, "6"),
    ]


def test_a_line_of_20_mb_is_read(tmp_path: Path) -> None:
    loaded = load(tmp_path, row("x" * 20_000_000) + b"\n" + row("q"))
    assert [len(r.prompt) for r in loaded.rows] == [20_000_000, 1]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row("b")[:-9], "not a JSON value"),
        (b'{"prompt": "\xff", "label": "l"}', "not UTF-8"),
        (b"[1, 2]", "a JSON object is needed, this is a list"),
        (b"\xef\xbb\xbf" + row("b"), "not a JSON value"),
        (b'{"prompt": "p", "label": NaN}', "NaN is not a JSON number"),
        (row("b") + b" " + row("c"), "not a JSON value"),
        (b'{"prompt": "\\ud800", "label": "l"}', "surrogate"),
        (b'{"prompt": "p", "label": "\\uDC00"}', "surrogate"),
        (b'{"prompt": "p", "label": "l", "id": "a\\ud83d"}', "surrogate"),
        (b'{"prompt": "p", "label": "l", "x": [{"\\udfff": 1}]}', "surrogate"),
        (b'{"prompt": "p", "label": 1e999}', "1e999 is not a JSON number"),
        pytest.param(b"[" * 100_000, "not a JSON value", id="too-deep"),
    ],
)
def test_a_bad_line_is_an_error_with_file_and_line(tmp_path: Path, bad: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=rf"set\.jsonl:3: .*{message}"):
        load(tmp_path, row("a") + b"\n\n" + bad + b"\n" + row("z"))


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="has no rows"):
        load(tmp_path, b"\n \n")


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"cannot read .*gone\.jsonl"):
        EvalSet.load(EvalSetConfig(name="set", path=tmp_path / "gone.jsonl"))


def test_a_path_that_is_none_is_refused() -> None:
    with pytest.raises(DatasetError, match="cannot read"):
        EvalSet.load(EvalSetConfig(name="set", path=Path("a\0b.jsonl")))


@pytest.mark.parametrize("bad", [{"name": "a\udcff"}, {"path": Path("a\udcff.jsonl")}, {"name": "x" * 81}])
def test_a_name_or_path_that_cannot_be_told_is_refused(bad: dict[str, Any]) -> None:
    """What stands on a command line are bytes, and need not be UTF-8."""
    with pytest.raises(ConfigError, match="1 to 80 characters, and with its path be UTF-8"):
        EvalSetConfig(**{"name": "set", "path": Path("a.jsonl"), **bad})


def test_whole_surrogate_pairs_are_text(tmp_path: Path) -> None:
    loaded = load(tmp_path, b'{"prompt": "\\ud83d\\ude00", "label": "l"}')
    assert loaded.rows[0].prompt == "\N{GRINNING FACE}"


def test_the_set_knows_its_size_and_its_files_hash(tmp_path: Path) -> None:
    data = row("a") + b"\n" + row("b") + b"\n"
    loaded = load(tmp_path, data, n=3)
    assert (len(loaded.rows), loaded.num_expected) == (2, 6)
    assert loaded.file_sha256 == hashlib.sha256(data).hexdigest()
    told = json.loads(json.dumps(loaded.description()))
    assert (told["file_sha256"], told["num_rows"]) == (loaded.file_sha256, 2)
    assert (told["settings"]["n"], told["settings"]["sampling"]["temperature"]) == (3, 0.0)


# --- row ids ----------------------------------------------------------------------------


def test_a_row_is_known_by_its_id_field_else_by_its_line(tmp_path: Path) -> None:
    data = row("a", id="first") + b"\n" + row("b") + b"\n" + row("c", id=77)
    assert [r.row_id for r in load(tmp_path, data).rows] == ["first", "2", "77"]


def test_two_rows_of_one_id_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r":2: id '2' is taken by line 1"):
        load(tmp_path, row("a", id=2) + b"\n" + row("b"))


@pytest.mark.parametrize("bad", [None, True, 1.5, "", ["a"]])
def test_an_id_that_is_no_name_is_refused(tmp_path: Path, bad: object) -> None:
    with pytest.raises(DatasetError, match=":1: id is"):
        load(tmp_path, row("a", id=bad))


# --- labels -----------------------------------------------------------------------------


@pytest.mark.parametrize("label", [72, "72", 72.0, "1a", True])
def test_scalar_labels_are_kept_as_they_stand(tmp_path: Path, label: object) -> None:
    kept = load(tmp_path, row("a", label)).rows[0].label
    assert kept == label
    assert type(kept) is type(label)


@pytest.mark.parametrize("label", [["72", "72.0"], {"a": 1}])
def test_a_label_that_exact_match_cannot_compare_is_a_load_error(tmp_path: Path, label: object) -> None:
    data = row("a") + b"\n" + row("b", label)
    with pytest.raises(DatasetError, match=r"set\.jsonl:2: label .* cannot be matched exactly"):
        load(tmp_path, data)
    assert load(tmp_path, data, reward="pkg.fn").rows[1].label == label


@pytest.mark.parametrize("reward", ["exact_match", "pkg.fn"])
def test_a_null_or_missing_label_is_a_load_error_for_every_reward(tmp_path: Path, reward: str) -> None:
    with pytest.raises(DatasetError, match=r":1: field 'label' is null"):
        load(tmp_path, row("a", None), reward=reward)
    with pytest.raises(DatasetError, match=r":1: field 'label' is missing"):
        load(tmp_path, b'{"prompt": "a"}', reward=reward)


def test_a_reward_that_needs_no_label_can_do_without(tmp_path: Path) -> None:
    assert load(tmp_path, b'{"prompt": "a"}', reward="pkg.fn", label_key=None).rows[0].label is None


def test_all_fields_of_a_row_are_kept_for_reward_functions(tmp_path: Path) -> None:
    assert load(tmp_path, row("a", "l", difficulty=3)).rows[0].fields["difficulty"] == 3


# --- prompts ----------------------------------------------------------------------------


@pytest.mark.parametrize("prompt", [1, None, {"role": "user"}, ""])
def test_a_prompt_that_is_no_text_is_refused(tmp_path: Path, prompt: object) -> None:
    with pytest.raises(DatasetError, match=":1: the prompt is"):
        load(tmp_path, json.dumps({"prompt": prompt, "label": "l"}).encode())


def test_a_missing_prompt_field_says_which_fields_are_there(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r":1: no field 'prompt'; set prompt_key to .*'label', 'q'"):
        load(tmp_path, b'{"q": "a", "label": "l"}')
    assert load(tmp_path, b'{"q": "a", "label": "l"}', prompt_key="q").rows[0].prompt == "a"


CHAT = [{"role": "user", "content": "hi"}]


def test_a_chat_without_a_template_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="list of chat messages: set apply_chat_template, or write"):
        load(tmp_path, json.dumps({"prompt": CHAT, "label": "l"}).encode())


def test_a_chat_and_its_text_form_become_the_same_ids_with_one_bos(tmp_path: Path) -> None:
    data = json.dumps({"prompt": CHAT, "label": "l"}).encode() + b"\n" + row("hi")
    config = EvalSetConfig(name="set", path=write(tmp_path, data), apply_chat_template=True)
    rows = EvalSet.load(config, tokenizer=ChatTokenizer()).rows
    assert rows[0].input_ids == rows[1].input_ids == (BOS, *b"<user>hi<assistant>")


def test_the_templates_settings_and_tools_reach_it(tmp_path: Path) -> None:
    tools = [{"name": "add"}]
    data = json.dumps({"prompt": "hi", "label": "l", "tools": json.dumps(tools)}).encode()
    config = EvalSetConfig(
        name="set", path=write(tmp_path, data), apply_chat_template=True,
        apply_chat_template_kwargs={"enable_thinking": False}, tool_key="tools",
    )  # fmt: skip
    (found,) = EvalSet.load(config, tokenizer=ChatTokenizer()).rows
    assert found.prompt == "<bos>{'enable_thinking': False}[{'name': 'add'}]<user>hi<assistant>"
    assert found.metadata == {"tools": tools}


def test_plain_text_gets_the_special_tokens_that_its_settings_ask_for(tmp_path: Path) -> None:
    path = write(tmp_path, row("hi"))
    plain = EvalSetConfig(name="set", path=path)
    assert EvalSet.load(plain, tokenizer=ChatTokenizer()).rows[0].input_ids is None
    for special, ids in ((True, (BOS, *b"hi")), (False, tuple(b"hi"))):
        config = EvalSetConfig(name="set", path=path, special_tokens=special, max_prompt_tokens=9)
        assert EvalSet.load(config, tokenizer=ChatTokenizer()).rows[0].input_ids == ids


def test_long_prompts_are_left_out_and_counted_where_the_settings_say_so(tmp_path: Path) -> None:
    path = write(tmp_path, row("hi") + b"\n" + row("a longer one"))
    config = EvalSetConfig(name="set", path=path, max_prompt_tokens=5, drop_long_prompts=True)
    found = EvalSet.load(config, tokenizer=ChatTokenizer())
    assert ([each.line for each in found.rows], found.num_dropped) == ([1], 1)
    with pytest.raises(DatasetError, match="has only prompts longer than 1"):
        EvalSet.load(replace(config, max_prompt_tokens=1), tokenizer=ChatTokenizer())


def test_prompts_that_need_a_tokenizer_are_refused_without_one(tmp_path: Path) -> None:
    config = EvalSetConfig(name="set", path=write(tmp_path, row("hi")), apply_chat_template=True)
    with pytest.raises(DatasetError, match=":1: the prompts need the model's tokenizer"):
        EvalSet.load(config)


@pytest.mark.parametrize(
    ("chat", "message"),
    [
        ([], "no messages"),
        (["hi"], "an object with a role"),
        ([{"content": "hi"}], "an object with a role"),
        ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "hi"}]}], "only text"),
        ([{"role": "user", "content": None}], "only text"),
    ],
)
def test_chats_that_are_not_plain_text_are_refused(tmp_path: Path, chat: Any, message: str) -> None:
    path = write(tmp_path, json.dumps({"prompt": chat, "label": "l"}).encode())
    config = EvalSetConfig(name="set", path=path, apply_chat_template=True)
    with pytest.raises(DatasetError, match=f":1: .*{message}"):
        EvalSet.load(config, tokenizer=ChatTokenizer())


# --- configuration ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {"name": ""},
        {"n": 0},
        {"min_coverage": 1.5},
        {"pass_threshold": float("nan")},
        {"max_prompt_tokens": 0},
        {"label_key": None},
        {"reward_key": "acc"},
        {"reward": "exactmatch"},
        {"reward": "pkg..fn"},
    ],
)
def test_settings_that_cannot_be_are_refused_at_construction(tmp_path: Path, bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="dataset "):
        EvalSetConfig(**{"name": "set", "path": tmp_path, **bad})


def test_two_datasets_of_one_name_are_refused(tmp_path: Path) -> None:
    config = EvalSetConfig(name="set", path=write(tmp_path, row()))
    assert list(load_eval_sets([config])) == ["set"]
    with pytest.raises(ConfigError, match="datasets of one name: 'set'"):
        load_eval_sets([config, config])
