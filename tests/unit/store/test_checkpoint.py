"""A checkpoint that a user names is whole, or refused with what is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fakes.checkpoints import EMBED, ODD, PLAIN, Model

from live_eval.errors import CorruptVersion
from live_eval.store import BaseCheckpoint, check_complete

INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize("num_files", [1, 2])
def test_a_whole_checkpoint_passes_with_its_figures(tmp_path: Path, num_files: int) -> None:
    path = Model(metas=ODD).write(tmp_path / "c", num_files=num_files)
    report = check_complete(path, check_finite=True)
    assert report.num_tensors == len(ODD)
    assert report.num_bytes == sum(file.stat().st_size for file in path.glob("*.safetensors"))


def test_a_shard_that_the_index_names_must_be_there(tmp_path: Path) -> None:
    path = Model().write(tmp_path / "c", num_files=3)
    (path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CorruptVersion, match="names model-00002-of-00003"):
        check_complete(path)


def test_an_index_that_leaves_the_directory_is_refused(tmp_path: Path) -> None:
    path = Model().write(tmp_path / "c", num_files=2)
    (path / INDEX).write_text(json.dumps({"weight_map": {EMBED.name: "../other/model.safetensors"}}))
    with pytest.raises(CorruptVersion, match="not there"):
        check_complete(path)


def test_a_tensor_must_be_in_the_file_that_the_index_names(tmp_path: Path) -> None:
    path = Model().write(tmp_path / "c", num_files=2)
    index = json.loads((path / INDEX).read_text())
    index["weight_map"]["model.lost.weight"] = "model-00001-of-00002.safetensors"
    (path / INDEX).write_text(json.dumps(index))
    with pytest.raises(CorruptVersion, match=r"'model.lost.weight' into"):
        check_complete(path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": {}}'])
def test_an_index_without_a_map_is_refused(tmp_path: Path, text: str) -> None:
    path = Model().write(tmp_path / "c", num_files=2)
    (path / INDEX).write_text(text)
    with pytest.raises(CorruptVersion, match="index"):
        check_complete(path)


def test_one_tensor_in_two_files_needs_an_index(tmp_path: Path) -> None:
    path = Model().write(tmp_path / "c")
    (path / "old.safetensors").write_bytes((path / "model-00001-of-00001.safetensors").read_bytes())
    with pytest.raises(CorruptVersion, match="without an index"):
        check_complete(path)


def test_only_what_the_index_takes_from_a_file_counts(tmp_path: Path) -> None:
    path = Model().write(tmp_path / "c")
    file = path / "model-00001-of-00001.safetensors"
    (path / "old.safetensors").write_bytes(file.read_bytes())
    places = {meta.name: file.name for meta in PLAIN} | {EMBED.name: "old.safetensors"}
    (path / INDEX).write_text(json.dumps({"weight_map": places}))
    assert check_complete(path).num_tensors == len(PLAIN)
    assert BaseCheckpoint.read(path).files[EMBED.name] == "old.safetensors"


@pytest.mark.parametrize("size", [0, 4, 40, 300])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    path = Model().write(tmp_path / "c")
    file = path / "model-00001-of-00001.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CorruptVersion, match="model-00001"):
        check_complete(path)


def test_nan_is_refused_on_request_and_named(tmp_path: Path) -> None:
    path = Model(override={EMBED.name: b"\xc0\x7f" * 128}).write(tmp_path / "c")
    check_complete(path)
    with pytest.raises(CorruptVersion, match=r"embed_tokens.*NaN"):
        check_complete(path, check_finite=True)


@pytest.mark.parametrize(
    "mark", ["latest_checkpointed_iteration.txt", "common.pt", ".metadata", "__0_0.distcp"]
)
def test_torch_dist_is_refused_with_the_command_that_converts_it(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).write_text("")
    with pytest.raises(CorruptVersion, match=r"convert_torch_dist_to_hf\.py --input-dir"):
        check_complete(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickles_are_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(CorruptVersion, match=r"pickle.*save_pretrained"):
        check_complete(tmp_path)


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (None, "config.json is not there"),
        ("{", "JSON"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "cannot be read as JSON"),
    ],
)
def test_a_config_is_needed(tmp_path: Path, config: str | None, text: str) -> None:
    path = Model().write(tmp_path / "c")
    (path / "config.json").unlink()
    if config is not None:
        (path / "config.json").write_text(config)
    with pytest.raises(CorruptVersion, match=text):
        check_complete(path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "other.safetensors"])
def test_what_would_be_read_for_ever_is_refused(tmp_path: Path, name: str) -> None:
    path = Model().write(tmp_path / "c")
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    with pytest.raises(CorruptVersion, match=rf"{name}: this is (no file|a pipe)"):
        check_complete(path)
    (path / name).unlink()
    (path / name).symlink_to("/dev/zero")
    with pytest.raises(CorruptVersion, match=name):
        check_complete(path)


def test_a_path_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptVersion, match="no such directory"):
        check_complete(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(CorruptVersion, match="no such directory"):
        check_complete(tmp_path / "loop")
    with pytest.raises(CorruptVersion, match="cannot be read"):
        check_complete(tmp_path / ("x" * 300))


def test_a_directory_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CorruptVersion, match=r"no \.safetensors file"):
        check_complete(tmp_path)
