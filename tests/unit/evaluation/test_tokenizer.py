"""A real tokenizer and its chat template, made in a folder; needs transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from live_eval.errors import ConfigError, DatasetError
from live_eval.evaluation.datasets import EvalSet, EvalSetConfig
from live_eval.evaluation.tokenizer import HuggingFaceTokenizer, tokenizer_for

TEMPLATE = (
    "{{ bos_token }}{% if tools %}{{ tools | length }}{% endif %}{% for m in messages %}"
    "{% if m['role'] == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}{{ m['content'] }}"
    "{% endfor %}{% if add_generation_prompt %}>{% endif %}{% if thinking %}?{% endif %}"
)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A tokenizer of single characters that puts <s> in front of a text."""
    vocab = {"<s>": 0, **{chr(code): code for code in range(32, 127)}}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    folder = tmp_path / "model"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def loaded(
    tmp_path: Path, checkpoint: Path, row: dict[str, object], **settings: object
) -> tuple[int, ...] | None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"label": "l", **row}))
    config = EvalSetConfig(name="set", path=path, **settings)  # type: ignore[arg-type]
    return EvalSet.load(config, tokenizer=tokenizer_for([config], checkpoint)).rows[0].input_ids


def test_a_template_that_emits_bos_gives_one_and_text_and_chat_are_the_same(
    tmp_path: Path, checkpoint: Path
) -> None:
    chat = {"prompt": [{"role": "user", "content": "hi"}]}
    ids = (0, *map(ord, "hi>"))
    for row in ({"prompt": "hi"}, chat):
        assert loaded(tmp_path, checkpoint, row, apply_chat_template=True) == ids
    thinking = {"apply_chat_template_kwargs": {"thinking": True}, "tool_key": "t"}
    found = loaded(tmp_path, checkpoint, {**chat, "t": [{}, {}]}, apply_chat_template=True, **thinking)
    assert found == (0, *map(ord, "2hi>?"))


def test_plain_text_has_special_tokens_only_where_it_shall(tmp_path: Path, checkpoint: Path) -> None:
    row = {"prompt": "hi"}
    assert loaded(tmp_path, checkpoint, row) is None, "the engine does it"
    assert loaded(tmp_path, checkpoint, row, special_tokens=False) == tuple(map(ord, "hi"))
    assert loaded(tmp_path, checkpoint, row, max_prompt_tokens=9) == (0, *map(ord, "hi"))


def test_a_text_that_begins_with_the_bos_has_one(tmp_path: Path, checkpoint: Path) -> None:
    for special in (True, False):
        found = loaded(tmp_path, checkpoint, {"prompt": "<s>hi"}, special_tokens=special, max_prompt_tokens=9)
        assert found == (0, *map(ord, "hi"))


def test_a_template_that_cannot_take_a_chat_or_is_not_there_says_so(tmp_path: Path, checkpoint: Path) -> None:
    tool = {"prompt": [{"role": "tool", "content": "4"}]}
    with pytest.raises(DatasetError, match=":1: the chat template cannot take it: no tools here"):
        loaded(tmp_path, checkpoint, tool, apply_chat_template=True)
    config = json.loads((checkpoint / "tokenizer_config.json").read_text())
    del config["chat_template"]
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(DatasetError, match="has no chat template"):
        loaded(tmp_path, checkpoint, {"prompt": "hi"}, apply_chat_template=True)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    config = EvalSetConfig(name="set", path=tmp_path, special_tokens=False)
    with pytest.raises(ConfigError, match="has no tokenizer that can be loaded"):
        HuggingFaceTokenizer(tmp_path)
    with pytest.raises(ConfigError, match="has no tokenizer that can be loaded"):
        tokenizer_for([config], tmp_path)


def test_code_of_a_checkpoint_is_not_run_unless_it_is_trusted(checkpoint: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    (checkpoint / "mine.py").write_text(
        "from pathlib import Path\nfrom transformers import PreTrainedTokenizerFast\n"
        f"Path({str(ran)!r}).touch()\nclass Mine(PreTrainedTokenizerFast):\n    pass\n"
    )
    config = json.loads((checkpoint / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "Mine", "auto_map": {"AutoTokenizer": [None, "mine.Mine"]}}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="trust_remote_code"):
        HuggingFaceTokenizer(checkpoint)
    assert not ran.exists()
