"""Folders in which checkpoints appear."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fakes.checkpoints import Model

from live_eval.coordinator.watch import CheckpointWatch


def names(watch: CheckpointWatch) -> list[str]:
    return [path.name for path in watch.look().whole]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in (1000, 200, 40):
        Model(seed=step).write(tmp_path / f"step_{step}")
    return tmp_path


def test_checkpoints_come_in_the_order_of_their_numbers_and_once(folder: Path) -> None:
    watch = CheckpointWatch([folder])
    assert names(watch) == []
    assert names(watch) == ["step_40", "step_200", "step_1000"]
    assert names(watch) == []
    Model(seed=5).write(folder / "step_60")
    assert [names(watch), names(watch), names(watch)] == [[], ["step_60"], []]


def test_one_that_is_being_written_is_left_until_it_is_whole_and_quiet(tmp_path: Path) -> None:
    whole = Model(seed=1).write(tmp_path / "elsewhere" / "step_1")
    folder = tmp_path / "folder"
    growing = folder / "step_1"
    watch = CheckpointWatch([folder])
    assert names(watch) == []
    growing.mkdir(parents=True)
    for file in sorted(whole.iterdir()):
        data = file.read_bytes()
        for part in (data[: len(data) // 2], data):
            (growing / file.name).write_bytes(part)
            assert names(watch) == []
    assert [names(watch), names(watch)] == [["step_1"], []]


def test_what_was_evaluated_before_is_known_by_its_real_path(folder: Path) -> None:
    (folder / "latest").symlink_to(folder / "step_1000")
    watch = CheckpointWatch([folder])
    watch.look([str(folder / "step_40"), str(folder / "latest")])
    assert names(watch) == ["step_200"]


def test_a_link_beside_its_target_is_no_second_look(folder: Path) -> None:
    (folder / "latest").symlink_to(folder / "step_1000")
    watch = CheckpointWatch([folder])
    assert names(watch) == []
    assert names(watch) == ["step_40", "step_200", "step_1000"]


def test_links_that_lead_nowhere_hide_nothing(folder: Path) -> None:
    for place in (folder, folder / "step_40"):
        (place / "loop").symlink_to(place / "loop")
        (place / "gone").symlink_to(place / "nothing")
    watch = CheckpointWatch([folder])
    assert [names(watch), names(watch)] == [[], ["step_40", "step_200", "step_1000"]]


def test_one_whose_weights_come_last_is_taken_when_they_are_there(folder: Path) -> None:
    """Some trainers write their optimizer first, which alone looks like a pickled checkpoint."""
    late = folder / "step_40"
    (weights,) = late.glob("*.safetensors")
    name, kept = weights.name, weights.rename(folder / "kept")
    (late / "optimizer.pt").touch()
    watch = CheckpointWatch([folder])
    watch.look()
    assert [path.name for path, _ in watch.look().refused] == ["step_40"]
    assert watch.look().refused == ()
    kept.rename(late / name)
    assert [names(watch), names(watch), names(watch)] == [[], ["step_40"], []]


def test_hidden_temporary_and_other_things_are_left_alone(folder: Path) -> None:
    for name in (".step_5", "_step_5", "step_5.tmp", "step_5.partial"):
        shutil.copytree(folder / "step_40", folder / name)
    (folder / "step_7").write_text("a file")
    (folder / "empty").mkdir()
    watch = CheckpointWatch([folder, folder / "nothing"])
    watch.look()
    assert names(watch) == ["step_40", "step_200", "step_1000"]


def test_what_can_never_be_read_is_told_once_with_what_to_do(tmp_path: Path) -> None:
    for name, file in (("iter_1", "common.pt"), ("hf_1", "pytorch_model.bin")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_bytes(b"x")
        (tmp_path / name / "config.json").write_text("{}")
    watch = CheckpointWatch([tmp_path])
    assert watch.look().refused == ()
    refused = dict(watch.look().refused)
    assert "tools/convert_torch_dist_to_hf.py" in refused[tmp_path / "iter_1"]
    assert "save_pretrained" in refused[tmp_path / "hf_1"]
    assert watch.look().refused == ()
