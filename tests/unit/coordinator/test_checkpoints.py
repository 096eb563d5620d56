"""The train step of a checkpoint that a user named, and a name for its files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from live_eval.coordinator.checkpoints import files_of, train_step_of
from live_eval.store.manifest import MANIFEST_NAME, Manifest, digest_of


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_200", 200),
        ("iter_0000400", 400),
        ("checkpoint-1500", 1500),
        ("global_step64", 64),
        ("run7_step_8", 8),
        ("Qwen2-1.5B", None),
        ("2026-11-29", None),
        ("v000003", None),
        ("step", None),
        ("step_9007199254740991", 2**53 - 1),
        ("step_20261130110354123456", None),
    ],
)
def test_only_a_name_that_trainers_give_to_a_step_says_the_step(
    tmp_path: Path, name: str, step: int | None
) -> None:
    assert train_step_of(tmp_path / name) == step


def test_a_policy_versions_directory_says_its_step_itself(tmp_path: Path) -> None:
    directory = tmp_path / "step_3"
    directory.mkdir()
    manifest = Manifest(
        policy_version=3,
        weight_version=3,
        incarnation=1,
        run_id="run",
        train_step=68,
        num_tensors=0,
        num_bytes=0,
        digest=digest_of(()),
        began_at=1.0,
        sealed_at=2.0,
        tensors=(),
    )
    (directory / MANIFEST_NAME).write_bytes(manifest.encode())
    assert train_step_of(directory) == 68


def test_a_manifest_of_something_else_says_nothing(tmp_path: Path) -> None:
    (tmp_path / MANIFEST_NAME).write_text("{}")
    assert train_step_of(tmp_path) is None


def test_the_name_of_a_checkpoints_files_is_another_one_after_any_change(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    (tmp_path / "logs").mkdir()
    names = [files_of(tmp_path)]
    assert names[0] == files_of(tmp_path) != ""
    (tmp_path / "logs" / "later.txt").touch()
    assert files_of(tmp_path) == names[0]
    file.write_bytes(b"weighty")
    os.utime(file, ns=(1, 1))
    names.append(files_of(tmp_path))
    copy = tmp_path / "copy"
    copy.write_bytes(b"weighty")
    os.utime(copy, ns=(1, 1))
    copy.replace(file)
    names.append(files_of(tmp_path))
    file.unlink()
    names.append(files_of(tmp_path))
    assert len(set(names)) == 4
    assert files_of(tmp_path / "nowhere") == ""
