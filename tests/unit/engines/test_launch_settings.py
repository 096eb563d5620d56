"""How a server is started: the CPU path only when asked, and never with a guessed dtype."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from live_eval.engines import launch
from live_eval.engines.embedded.settings import STUBS_DIR
from live_eval.engines.launch import checkpoint_dtype, free_port, launch_settings
from live_eval.errors import ConfigError, EngineError


def checkpoint(path: Path, config: dict[str, object]) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_cpu_settings_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE", raising=False)
    path = checkpoint(tmp_path, {"dtype": "bfloat16"})
    on_cpu = launch_settings(path, device="cpu")
    assert "torch_native" in on_cpu.args
    assert on_cpu.env["SGLANG_USE_CPU_ENGINE"] == "1"
    assert on_cpu.append_paths == (STUBS_DIR,)
    on_gpu = launch_settings(path, tp_size=2, first_gpu=4)
    assert on_gpu.args == ("--device", "cuda", "--base-gpu-id", "4")
    assert on_gpu.env == {}
    assert on_gpu.append_paths == ()
    assert on_gpu.tp_size == 2


def test_what_the_environment_has_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert (
        "OMP_NUM_THREADS" not in launch_settings(checkpoint(tmp_path, {"dtype": "float32"}), device="cpu").env
    )


def test_extra_arguments_come_last_so_that_they_win(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, {"dtype": "float32"})
    settings = launch_settings(path, device="cpu", extra_args=("--max-total-tokens", "99"))
    assert settings.args[-2:] == ("--max-total-tokens", "99")


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"dtype": "float32"}, "float32"),
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "torch.float16"}, "float16"),
        ({"text_config": {"dtype": "bfloat16"}}, "bfloat16"),
    ],
)
def test_dtype_is_the_checkpoints_own(tmp_path: Path, config: dict[str, object], dtype: str) -> None:
    assert checkpoint_dtype(checkpoint(tmp_path, config)) == dtype
    assert launch_settings(tmp_path, dtype="float16").dtype == "float16"


def test_a_checkpoint_without_dtype_or_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no Hugging Face checkpoint"):
        launch_settings(tmp_path)
    with pytest.raises(ConfigError, match="names no dtype"):
        launch_settings(checkpoint(tmp_path, {"dtype": None}))
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ConfigError, match="JSON object"):
        launch_settings(tmp_path)


def test_free_ports_differ_and_leave_room_for_those_that_sglang_derives() -> None:
    ports = {free_port() for _ in range(20)}
    assert len(ports) > 10
    assert all(1024 < port <= 65_535 - 10_000 for port in ports)


def test_a_port_in_use_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(launch, "PORTS", range(port, port + 1))
        with pytest.raises(EngineError, match="no free port"):
            free_port()
    assert free_port() == port


def test_stand_ins_can_be_imported_and_never_compute() -> None:
    code = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "import sgl_kernel, torchvision\n"
        "from torchvision.transforms import InterpolationMode, v2, functional\n"
        "from torchvision.transforms.v2 import Resize, functional\n"
        "from torchvision.io import decode_jpeg\n"
        "assert InterpolationMode.BICUBIC.value == 'bicubic'\n"
        "Resize(224)\n"
        "for call in (sgl_kernel.rmsnorm, Resize(224), decode_jpeg()):\n"
        "    try: call(1)\n"
        "    except NotImplementedError: continue\n"
        "    raise SystemExit(f'{call} computed something')\n"
        "assert not hasattr(sgl_kernel, '__path_of_nobody__')\n"
    )
    subprocess.run([sys.executable, "-I", "-c", code, str(STUBS_DIR)], check=True, timeout=60)


def test_a_real_package_comes_before_its_stand_in(tmp_path: Path) -> None:
    (tmp_path / "sgl_kernel.py").write_text("real = True\n")
    code = (
        "import sys; sys.path[:0] = [sys.argv[1]]; sys.path.append(sys.argv[2])\n"
        "import sgl_kernel; sgl_kernel.real"
    )
    subprocess.run([sys.executable, "-I", "-c", code, str(tmp_path), str(STUBS_DIR)], check=True, timeout=60)
