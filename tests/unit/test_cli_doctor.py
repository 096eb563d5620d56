"""`doctor`: its judgement on made-up machines, and what it says about this one."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest

from live_eval.commands import diagnosis, doctor
from live_eval.commands.diagnosis import (
    GIB,
    Diagnosis,
    Finding,
    Package,
    judge_basics,
    judge_engines,
    judge_sinks,
    judge_transports,
)
from live_eval.commands.machine import Torch, look_at_torch, memory_bytes, version_of

ROOT = Path(__file__).resolve().parents[2]
ALL = {
    "torch": "2.13.0",
    "transformers": "5.12.1",
    "sglang": "0.5.15.post1",
    "ray": "2.60.0",
    "fastapi": "0.120.0",
    "uvicorn": "0.54.0",
    "prometheus_client": "0.26.0",
    "wandb": "0.31.0",
    "matplotlib": "3.11.2",
}
CPU = Torch(version="2.13.0", gloo=True)
GPU = Torch(version="2.13.0", gpus=("H200", "H200"), gloo=True, nccl=True)
BROKEN = Torch(version="2.13.0", error="import torch failed: ImportError: libcudart.so.12")


def made_of(*, basics: bool = True, engines: tuple[bool, ...], transports: tuple[bool, ...]) -> Diagnosis:
    def findings(*oks: bool) -> list[Finding]:
        return [Finding(name=f"n{i}", ok=ok, detail="", fix="do") for i, ok in enumerate(oks)]

    return Diagnosis(
        system={"python": "3.11 [/x]"},
        packages=[Package(name="ray", version="", purpose="transport ray")],
        basics=findings(basics),
        engines=findings(*engines),
        transports=findings(*transports),
        sinks=findings(False),
    )


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def test_the_job_runs_with_one_engine_and_one_transport() -> None:
    assert made_of(engines=(False, True), transports=(True, False)).ok


@pytest.mark.parametrize(
    "lacking",
    [
        made_of(basics=False, engines=(True,), transports=(True,)),
        made_of(engines=(False, False), transports=(True,)),
        made_of(engines=(True,), transports=(False, False)),
    ],
)
def test_the_job_does_not_run_without_basics_engine_or_transport(lacking: Diagnosis) -> None:
    assert not lacking.ok


def test_without_a_gpu_the_engine_runs_on_the_cpu_and_gloo_takes_the_place_of_nccl() -> None:
    engines = by_name(judge_engines(ALL, CPU))
    assert (engines["sglang on a GPU"].ok, engines["sglang on the CPU"].ok) == (False, True)
    assert "stand-in" in engines["sglang on the CPU"].detail
    assert by_name(judge_transports(ALL, CPU, 8 * GIB))["nccl"].detail == "gloo (torch 2.13.0)"


def test_with_a_gpu_nccl_is_what_syncs_use() -> None:
    assert by_name(judge_transports(ALL, GPU, 8 * GIB))["nccl"].detail == "NCCL (torch 2.13.0)"


def test_a_gpu_without_sglangs_kernels_cannot_serve() -> None:
    engine = by_name(judge_engines(ALL, GPU))["sglang on a GPU"]
    assert not engine.ok
    assert "sgl_kernel is missing" in engine.detail


def test_a_broken_torch_stops_engines_and_transports_and_is_quoted() -> None:
    findings = judge_engines(ALL, BROKEN) + judge_transports(ALL, BROKEN, 8 * GIB)
    assert not any(finding.ok for finding in findings)
    assert all("libcudart" in finding.detail and finding.fix for finding in findings)


@pytest.mark.parametrize("absent", ["sglang", "transformers"])
def test_an_absent_engine_package_is_named_with_what_to_do(absent: str) -> None:
    for finding in judge_engines({**ALL, absent: ""}, CPU):
        assert not finding.ok
        assert f"{absent} is not installed" in finding.detail
        assert finding.fix


def test_stand_ins_that_are_gone_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(diagnosis, "STUBS_DIR", tmp_path)
    engine = by_name(judge_engines(ALL, CPU))["sglang on the CPU"]
    assert not engine.ok
    assert "sgl_kernel" in engine.fix


def test_another_sglang_may_work_but_says_that_it_is_untested() -> None:
    engine = by_name(judge_engines({**ALL, "sglang": "0.5.23"}, CPU))["sglang on the CPU"]
    assert engine.ok
    assert "tested with 0.5.15.post1" in engine.fix


def test_ray_on_a_small_shared_memory_works_with_a_warning() -> None:
    ray = by_name(judge_transports(ALL, CPU, GIB // 16))["ray"]
    assert ray.ok
    assert "/dev/shm has 0.1 GiB free" in ray.fix


def test_missing_extras_name_the_extra() -> None:
    assert "live-eval[ray]" in by_name(judge_transports({**ALL, "ray": ""}, CPU, 0))["ray"].fix
    assert "live-eval[wandb]" in by_name(judge_sinks({**ALL, "wandb": ""}))["W&B"].fix
    assert "live-eval[http]" in by_name(judge_sinks({**ALL, "uvicorn": ""}))["page and HTTP API"].fix


def test_every_extra_of_the_project_is_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    fixes = {fix for _, fix in diagnosis.OPTIONAL.values()}
    for extra in set(project["optional-dependencies"]) - {"dev"}:
        assert any(f"live-eval[{extra}]" in fix for fix in fixes), extra


def test_too_little_memory_and_missing_core_packages_are_basics() -> None:
    packages = [Package(name="msgpack", version="", purpose="wire format")]
    basics = by_name(judge_basics(packages, 1 * GIB))
    assert not basics["core packages"].ok
    assert "msgpack" in basics["core packages"].detail
    assert not basics["memory"].ok
    assert basics["memory"].detail.startswith("1.0 GiB available")


def test_torch_that_does_not_import_is_a_fact_and_not_a_crash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libfoo.so: not found')\n", encoding="utf-8")
    (tmp_path / "torch-9.9.dist-info").mkdir()
    (tmp_path / "torch-9.9.dist-info" / "METADATA").write_text(
        "Name: torch\nVersion: 9.9\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    torch = look_at_torch()
    assert torch.version == "9.9"
    assert torch.error == "import torch failed: ImportError: libfoo.so: not found"


def test_memory_is_known_and_consistent() -> None:
    total, available = memory_bytes()
    assert 0 < available <= total


def test_the_version_of_nothing_is_empty() -> None:
    assert version_of("no-such-package-here") == ""


def test_tables_and_plain_lines_show_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    lacking = made_of(engines=(False, False), transports=(True,))
    console = Console(width=120)
    with console.capture() as captured:
        doctor.print_tables(lacking, console)
    doctor.print_plain(lacking)
    plain = capsys.readouterr().out
    for text in (captured.get(), plain):
        assert "engine: n1" in text
        assert "not installed" in text
        assert "3.11 [/x]" in text
        assert "The main job cannot run here" in text


def test_doctor_exits_0_exactly_if_the_job_can_run_and_its_json_is_whole() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "live_eval.cli", "doctor", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    said = json.loads(done.stdout)
    assert said.keys() == asdict(made_of(engines=(), transports=())).keys()
    assert done.returncode == (0 if said["ok"] else 1)
    assert {package["name"] for package in said["packages"]} >= {"torch", "sglang", "ray", "msgpack"}
