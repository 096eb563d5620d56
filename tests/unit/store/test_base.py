"""The base checkpoint says what a sync must carry, what it may, and what it never does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fakes.checkpoints import EMBED, HEAD, NORM, ODD, PLAIN, PROJ, Model

from live_eval.errors import CorruptVersion
from live_eval.store import BaseCheckpoint
from protocol.messages import TensorMeta

MTP = TensorMeta("model.mtp.0.proj.weight", "bfloat16", (4, 4))


def names(metas: tuple[TensorMeta, ...]) -> set[str]:
    return {meta.name for meta in metas}


@pytest.mark.parametrize("num_files", [1, 3])
def test_every_tensor_is_expected_with_its_dtype_and_shape(tmp_path: Path, num_files: int) -> None:
    base = Model(metas=ODD).base(tmp_path / "base", num_files=num_files)
    assert base.expected() == {meta.name: meta for meta in ODD}
    assert base.optional() == {}
    assert base.known() == base.expected()


def test_a_tied_head_that_the_files_lack_may_be_sent_like_the_embedding(tmp_path: Path) -> None:
    base = Model(metas=(EMBED, NORM), tied=True).base(tmp_path / "base")
    assert base.tied_pair == ("lm_head.weight", EMBED.name)
    assert set(base.expected()) == {EMBED.name, NORM.name}
    assert base.optional() == {HEAD.name: HEAD}


def test_a_tied_head_that_the_files_hold_need_not_be_sent_and_is_never_taken_from_them(
    tmp_path: Path,
) -> None:
    base = Model(metas=PLAIN, tied=True).base(tmp_path / "base")
    assert HEAD.name not in base.expected()
    assert base.from_base(base.expected()) == []


@pytest.mark.parametrize(
    ("embedding", "head"),
    [
        ("model.embed_tokens.weight", "lm_head.weight"),
        ("model.language_model.embed_tokens.weight", "lm_head.weight"),
        ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
    ],
)
def test_the_tied_head_is_named_after_the_wrapping_of_the_embedding(
    tmp_path: Path, embedding: str, head: str
) -> None:
    base = Model(metas=(TensorMeta(embedding, "bfloat16", (4, 4)),), tied=True).base(tmp_path / "base")
    assert base.tied_pair == (head, embedding)


def test_an_untied_head_is_expected(tmp_path: Path) -> None:
    base = Model(tied=False).base(tmp_path / "base")
    assert base.tied_pair is None
    assert HEAD.name in base.expected()


def test_untied_without_a_head_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CorruptVersion, match=r"tie_word_embeddings is false.*lm_head"):
        Model(metas=(EMBED, NORM), tied=False).base(tmp_path / "base")


@pytest.mark.parametrize(("metas", "tied"), [(PLAIN, False), ((EMBED, NORM), True)])
def test_a_config_that_does_not_say_is_judged_by_the_files(
    tmp_path: Path, metas: tuple[TensorMeta, ...], tied: bool
) -> None:
    base = Model(metas=metas, tied=None).base(tmp_path / "base")
    assert base.tied is None
    assert (base.tied_pair is not None) is tied


def test_a_nested_text_config_says_whether_the_head_is_tied(tmp_path: Path) -> None:
    path = Model(metas=(EMBED, NORM), tied=None).write(tmp_path / "base")
    (path / "config.json").write_text(json.dumps({"text_config": {"tie_word_embeddings": True}}))
    assert BaseCheckpoint.read(path).tied is True


def test_allowed_absent_tensors_come_from_the_base(tmp_path: Path) -> None:
    base = Model(metas=(*PLAIN, MTP)).base(tmp_path / "base", allowed_absent=("model.mtp.*",))
    assert MTP.name not in base.expected()
    assert base.optional() == {MTP.name: MTP}
    assert base.from_base(base.expected()) == [MTP.name]
    assert base.from_base(base.known()) == []


def test_a_tensor_is_copied_byte_for_byte_and_hashed_once(tmp_path: Path) -> None:
    model = Model(metas=ODD)
    base = model.base(tmp_path / "base")
    for meta in ODD:
        data = np.empty(meta.num_bytes, dtype=np.uint8)
        base.copy_tensor(meta.name, into=data)
        assert data.tobytes() == model.data(meta.name)
    digest = base.digest(PROJ.name)
    for file in base.path.glob("*.safetensors"):
        file.unlink()
    assert base.digest(PROJ.name) == digest


def test_side_files_are_what_is_small_and_no_weights(tmp_path: Path) -> None:
    path = Model().write(tmp_path / "base", num_files=2)
    for name in ("vocab.json", "modeling_own.py", "optimizer.pt", "pytorch_model.bin.index.json", ".hidden"):
        (path / name).write_text("{}")
    with (path / "huge.json").open("wb") as file:
        file.truncate(65 << 20)
    (path / "folder").mkdir()
    (tmp_path / "blob").write_text("{}")
    (path / "linked.json").symlink_to(tmp_path / "blob")
    base = BaseCheckpoint.read(path)
    assert base.side_files == (
        "config.json",
        "linked.json",
        "modeling_own.py",
        "tokenizer.json",
        "vocab.json",
    )
    assert base.side_bytes == sum((path / name).stat().st_size for name in base.side_files)
