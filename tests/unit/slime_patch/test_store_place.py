"""A store on a disk of its own is linked from the run directory, on whatever node that is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from live_eval.errors import ConfigError
from live_eval.rundir import RunDir
from slime_patch.service_actor import _place_store


def test_a_store_elsewhere_is_made_once_and_found_again(tmp_path: Path) -> None:
    run_dir, disk = RunDir(tmp_path / "run"), tmp_path / "disk"
    run_dir.make()
    for _ in range(2):
        _place_store(run_dir, disk)
        assert run_dir.store.resolve() == disk / "run"
        (run_dir.store / "catalogue.sqlite").touch()


def test_a_run_directory_that_another_node_sees_gets_a_store_on_that_nodes_disk(tmp_path: Path) -> None:
    run_dir, disk = RunDir(tmp_path / "run"), tmp_path / "disk"
    run_dir.make()
    _place_store(run_dir, disk)
    disk.rename(tmp_path / "disk of the node that is gone")
    _place_store(run_dir, disk)
    assert run_dir.store.is_dir()
    assert list(run_dir.store.iterdir()) == []


def test_a_place_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "run")
    run_dir.make()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--eval-store-dir"):
        _place_store(run_dir, tmp_path / "file")
