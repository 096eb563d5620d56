"""A sealed version whose files are not what was sealed is found out, and says where."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.checkpoints import NORM, Model, seal

from live_eval.errors import CorruptVersion, NoSuchVersion
from live_eval.tensor_files import read_header

if TYPE_CHECKING:
    from live_eval.store import VersionStore

SHARD = "shard-00001.safetensors"


@pytest.fixture
def path(store: VersionStore, model: Model) -> Path:
    """A sealed version 1 whose files anyone may change."""
    seal(store, model, 1)
    directory = store.path(1)
    directory.chmod(0o755)
    for file in directory.iterdir():
        file.chmod(0o644)
    return directory


def flip(path: Path, offset: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= bits
    path.write_bytes(data)


def edit_json(path: Path, change: Callable[[dict], None]) -> None:
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table))


def test_an_untouched_version_passes_and_returns_its_manifest(store: VersionStore, path: Path) -> None:
    assert store.verify(1) == store.manifest(1)


@pytest.mark.parametrize("size", [0, 4, 40, 300, -1])
def test_a_truncated_file_is_found(store: VersionStore, path: Path, size: int) -> None:
    (path / SHARD).write_bytes((path / SHARD).read_bytes()[:size])
    with pytest.raises(CorruptVersion, match=SHARD):
        store.verify(1)


def test_a_lengthened_file_is_found(store: VersionStore, path: Path) -> None:
    with (path / SHARD).open("ab") as file:
        file.write(b"..")
    with pytest.raises(CorruptVersion, match=SHARD):
        store.verify(1)


@pytest.mark.parametrize("where", ["begin", "end"])
def test_one_flipped_bit_is_found_and_its_tensor_named(store: VersionStore, path: Path, where: str) -> None:
    for name, slot in read_header(path / SHARD).slots.items():
        offset = slot.begin if where == "begin" else slot.end - 1
        flip(path / SHARD, offset)
        with pytest.raises(CorruptVersion, match=name):
            store.verify(1)
        flip(path / SHARD, offset)
    store.verify(1)


def test_swapped_names_of_one_shape_are_found(store: VersionStore, path: Path) -> None:
    file = path / "shard-00002.safetensors"
    text = file.read_bytes().replace(b"F32", b"I32")
    file.write_bytes(text)
    with pytest.raises(CorruptVersion, match="manifest says float32"):
        store.verify(1)


def test_a_renamed_tensor_is_found(store: VersionStore, path: Path) -> None:
    file = path / SHARD
    file.write_bytes(file.read_bytes().replace(b"embed_tokens", b"embed_tokenz"))
    with pytest.raises(CorruptVersion, match="embed_token"):
        store.verify(1)


@pytest.mark.parametrize("name", [SHARD, "config.json", "model.safetensors.index.json", "tokenizer.json"])
def test_a_missing_file_is_found(store: VersionStore, path: Path, name: str) -> None:
    (path / name).unlink()
    with pytest.raises(CorruptVersion, match=f"{name} is missing"):
        store.verify(1)


def test_a_file_that_an_engine_might_read_as_well_is_found(store: VersionStore, path: Path) -> None:
    (path / "more.safetensors").write_bytes(b"")
    with pytest.raises(CorruptVersion, match=r"more\.safetensors does not belong"):
        store.verify(1)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "tokenizer.json"])
def test_a_changed_side_file_is_found(store: VersionStore, path: Path, name: str) -> None:
    (path / name).write_bytes((path / name).read_bytes() + b"\n")
    with pytest.raises(CorruptVersion, match=name):
        store.verify(1)


def test_a_file_that_cannot_be_read_is_corrupt(store: VersionStore, path: Path) -> None:
    (path / SHARD).unlink()
    os.mkdir(path / SHARD)
    with pytest.raises(CorruptVersion, match="cannot be read"):
        store.verify(1)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda table: table.pop("digest"), "no manifest"),
        (lambda table: table.update(format=2), "format 2"),
        (lambda table: table.update(digest="0" * 32), "not that of the tensors"),
        (lambda table: table["tensors"].pop(), "not that of the tensors"),
        (lambda table: table["tensors"][0].update(digest="0" * 32), "not that of the tensors"),
    ],
)
def test_a_manifest_that_was_changed_is_found(
    store: VersionStore, path: Path, change: Callable[[dict], None], text: str
) -> None:
    edit_json(path / "manifest.json", change)
    with pytest.raises(CorruptVersion, match=text):
        store.verify(1)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[]"])
def test_a_manifest_that_is_no_json_is_found(store: VersionStore, path: Path, data: bytes) -> None:
    (path / "manifest.json").write_bytes(data)
    with pytest.raises(CorruptVersion, match="no manifest"):
        store.verify(1)


def test_a_manifest_that_is_gone_is_found(store: VersionStore, path: Path) -> None:
    (path / "manifest.json").unlink()
    with pytest.raises(CorruptVersion, match="cannot be read"):
        store.manifest(1)


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800000, 0xFF800000])
def test_nan_and_infinity_are_flagged_though_every_digest_is_right(
    store: VersionStore, model: Model, bits: int
) -> None:
    model.override[NORM.name] = bits.to_bytes(4, "little") * 8
    seal(store, model, 1)
    with pytest.raises(CorruptVersion, match=rf"{NORM.name}.*NaN or infinity"):
        store.verify(1)
    store.verify(1, check_finite=False)


def test_what_is_not_sealed_is_no_such_version(store: VersionStore) -> None:
    with pytest.raises(NoSuchVersion, match="never given out"):
        store.verify(1)
