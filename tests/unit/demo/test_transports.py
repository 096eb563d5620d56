"""What a transport leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from live_eval.channel import socket_path
from live_eval.demo.transports import remove_socket_place, stop_ray
from live_eval.rundir import SERVICE_SOCKET, RunDir


def test_the_private_place_of_a_socket_goes_with_the_run(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / ("long" * 30))
    run_dir.make()
    socket = socket_path(run_dir.root, SERVICE_SOCKET)
    socket.with_name("service.sock.lock").touch()
    remove_socket_place(socket, run_dir)
    assert not socket.parent.exists()
    assert run_dir.samples.is_dir()


def test_a_socket_in_the_run_directory_leaves_the_directory_alone(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "." / "run")
    run_dir.make()
    remove_socket_place(tmp_path / "run" / SERVICE_SOCKET, run_dir)
    assert run_dir.samples.is_dir()


def test_rays_folder_goes_though_ray_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shutdown() -> None:
        raise ConnectionError("no raylet")

    monkeypatch.setattr("ray.shutdown", shutdown)
    (tmp_path / "session").mkdir()
    with pytest.raises(ConnectionError):
        stop_ray(tmp_path)
    assert not tmp_path.exists()
