"""What of live-eval can work here, and what to do about what cannot: the judgement behind `doctor`.

Judges facts of live_eval.commands.machine; knows nothing of how findings are shown.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import util

from live_eval.commands.machine import (
    GIB,
    Torch,
    look_at_system,
    look_at_torch,
    memory_bytes,
    shm_free,
    version_of,
)
from live_eval.engines.embedded.settings import STUBS_DIR

NEEDS_MEMORY = 4 * GIB
"""Bytes that a small trainer and one embedded engine take together."""
NEEDS_SHM = 2 * GIB
"""Below this much /dev/shm Ray's object store falls back to a slow directory."""
TESTED_SGLANG = ("0.5.15.post1",)
STAND_INS = ("sgl_kernel", "torchvision")

CORE = {
    "msgpack": "wire format",
    "msgspec": "typed messages",
    "xxhash": "digests",
    "numpy": "received bytes",
    "safetensors": "checkpoints",
    "httpx": "engine client",
    "psutil": "processes",
    "rich": "tables",
    "omegaconf": "eval configurations",
}
OPTIONAL = {
    "torch": ("trainer, engine and transport nccl", "make setup; on a GPU image use the image's torch"),
    "transformers": ("engine and demo model", "make setup; on a GPU image use the image's transformers"),
    "sglang": (
        "eval engine",
        "make setup (it installs SGLang without its CUDA packages); keep an image's own",
    ),
    "ray": ("transport ray", "pip install 'live-eval[ray]'; keep an image's own"),
    "wandb": ("W&B sink", "pip install 'live-eval[wandb]'"),
    "wandb_workspaces": ("live-eval view", "pip install 'live-eval[view]'"),
    "math_verify": ("rewards math and deepscaler", "pip install 'live-eval[eval]'"),
    "pyarrow": ("Parquet datasets and exports", "pip install 'live-eval[eval]'"),
    "fastapi": ("HTTP API and page", "pip install 'live-eval[http]'"),
    "uvicorn": ("HTTP API and page", "pip install 'live-eval[http]'"),
    "prometheus_client": ("/metrics of the HTTP API", "pip install 'live-eval[http]'"),
    "matplotlib": ("plot of the demo", "pip install 'live-eval[plot]'"),
    "libcst": ("python -m slime_patch apply", "pip install 'live-eval[patch]'"),
    "zstandard": ("slime's delta updates", "pip install 'live-eval[delta]'"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Package:
    """A package, the version that is installed ("" if none), and what it is for."""

    name: str
    version: str
    purpose: str
    fix: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that can or cannot work here."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    """What to do about it; may be there with ok too, as a warning."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnosis:
    """Everything `doctor` says."""

    system: dict[str, str]
    packages: list[Package]
    basics: list[Finding]
    engines: list[Finding]
    transports: list[Finding]
    sinks: list[Finding]
    ok: bool = field(init=False)
    """Whether the main job can run: all basics, one engine, one transport."""

    def __post_init__(self) -> None:
        """Derive `ok`."""
        ok = (
            all(finding.ok for finding in self.basics)
            and any(finding.ok for finding in self.engines)
            and any(finding.ok for finding in self.transports)
        )
        object.__setattr__(self, "ok", ok)


def installed_packages() -> list[Package]:
    """All packages that live-eval can use."""
    core = [
        Package(name=name, version=version_of(name), purpose=purpose, fix="pip install live-eval")
        for name, purpose in CORE.items()
    ]
    optional = [
        Package(name=name, version=version_of(name), purpose=purpose, fix=fix)
        for name, (purpose, fix) in OPTIONAL.items()
    ]
    return core + optional


def judge_basics(packages: list[Package], memory_available: int) -> list[Finding]:
    """What everything else needs."""
    version = sys.version_info[:2]
    enough = memory_available >= NEEDS_MEMORY
    missing = [package.name for package in packages if package.name in CORE and not package.version]
    return [
        Finding(
            name="Python",
            ok=(3, 11) <= version < (3, 13),
            detail=f"{version[0]}.{version[1]}; 3.11 and 3.12 are supported, the embedded engine on 3.11",
            fix="" if version == (3, 11) else "make setup with Python 3.11",
        ),
        Finding(
            name="core packages",
            ok=not missing,
            detail=f"missing: {', '.join(missing)}" if missing else "all installed",
            fix="pip install live-eval" if missing else "",
        ),
        Finding(
            name="memory",
            ok=enough,
            detail=f"{memory_available / GIB:.1f} GiB available, {NEEDS_MEMORY / GIB:.0f} needed",
            fix="" if enough else "end other programs, or raise the container's limit",
        ),
    ]


def judge_engines(versions: Mapping[str, str], torch: Torch) -> list[Finding]:
    """SGLang on a GPU, SGLang on the CPU."""
    sglang = versions["sglang"]
    if not sglang or torch.error or not versions["transformers"]:
        lacks = [name for name in ("sglang", "transformers") if not versions[name]]
        detail = "; ".join(
            ([torch.error] if torch.error else []) + [f"{name} is not installed" for name in lacks]
        )
        return [
            Finding(name=name, ok=False, detail=detail, fix=fix)
            for name, fix in (
                ("sglang on a GPU", "use an image with SGLang, such as slime's"),
                ("sglang on the CPU", "make setup"),
            )
        ]
    return [_engine_on_gpu(sglang, torch), _engine_on_cpu(sglang)]


def _engine_on_gpu(sglang: str, torch: Torch) -> Finding:
    kernels = util.find_spec("sgl_kernel") is not None
    if not torch.gpus:
        return Finding(
            name="sglang on a GPU",
            ok=False,
            detail="torch sees no GPU",
            fix="none needed for the embedded engine; else check the driver and CUDA_VISIBLE_DEVICES",
        )
    return Finding(
        name="sglang on a GPU",
        ok=kernels,
        detail=f"{sglang}, {len(torch.gpus)} x {torch.gpus[0]}"
        + ("" if kernels else ", but sgl_kernel is missing"),
        fix="" if kernels else "use an image with SGLang and its kernels, such as slime's",
    )


def _engine_on_cpu(sglang: str) -> Finding:
    real = [name for name in STAND_INS if util.find_spec(name) is not None]
    absent = [name for name in STAND_INS if name not in real and not (STUBS_DIR / name).is_dir()]
    linux = sys.platform == "linux" and platform.machine() == "x86_64"
    words = [f"{name}: {'the real one' if name in real else 'stand-in'}" for name in STAND_INS]
    fix = ""
    if absent:
        fix = f"the stand-ins for {', '.join(absent)} are not in {STUBS_DIR}: install live-eval again"
    elif not linux:
        fix = "the CPU path is tested on x86-64 Linux only"
    elif sglang not in TESTED_SGLANG:
        fix = f"tested with {', '.join(TESTED_SGLANG)}; another version may need other arguments"
    return Finding(
        name="sglang on the CPU", ok=not absent and linux, detail=f"{sglang}; {', '.join(words)}", fix=fix
    )


def judge_transports(versions: Mapping[str, str], torch: Torch, shm_bytes: int) -> list[Finding]:
    """nccl (or gloo in its place), ray."""
    backends = [name for name, there in (("NCCL", torch.nccl and torch.gpus), ("gloo", torch.gloo)) if there]
    nccl = Finding(
        name="nccl",
        ok=bool(backends),
        detail=torch.error
        or (f"{backends[0]} (torch {torch.version})" if backends else "torch has no backend"),
        fix="" if backends else "make setup; on a GPU image use the image's torch",
    )
    ray, fix = versions["ray"], ""
    if not ray or torch.error:
        fix = "pip install 'live-eval[ray]'" if not ray else "make setup"
    elif shm_bytes < NEEDS_SHM:
        fix = f"/dev/shm has {shm_bytes / GIB:.1f} GiB free; Ray is slow below {NEEDS_SHM / GIB:.0f}"
    detail = torch.error or (f"Ray {ray}" if ray else "ray is not installed")
    return [nccl, Finding(name="ray", ok=bool(ray) and not torch.error, detail=detail, fix=fix)]


def judge_sinks(versions: Mapping[str, str]) -> list[Finding]:
    """Where scores can go; none of them is needed for the job."""
    found = [Finding(name="results.jsonl", ok=True, detail="always")]
    for name, package in (("W&B", "wandb"), ("score plot", "matplotlib")):
        version = versions[package]
        fix = "" if version else OPTIONAL[package][1]
        detail = f"{package} {version}" if version else f"{package} is not installed"
        found.append(Finding(name=name, ok=bool(version), detail=detail, fix=fix))
    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if not versions[name]]
    found.append(
        Finding(
            name="page and HTTP API",
            ok=not missing,
            detail=f"{', '.join(missing)} not installed" if missing else f"fastapi {versions['fastapi']}",
            fix=OPTIONAL["fastapi"][1] if missing else "",
        )
    )
    return found


def diagnose() -> Diagnosis:
    """Look at everything; takes as long as importing torch (2 s)."""
    torch = look_at_torch()
    packages = installed_packages()
    versions = {package.name: package.version for package in packages}
    return Diagnosis(
        system=look_at_system(torch),
        packages=packages,
        basics=judge_basics(packages, memory_bytes()[1]),
        engines=judge_engines(versions, torch),
        transports=judge_transports(versions, torch, shm_free()),
        sinks=judge_sinks(versions),
    )
