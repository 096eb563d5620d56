"""Facts about this machine and this Python: memory, cores, GPUs, versions, what torch can do.

Reads metadata and asks the system; starts nothing but one short process that imports torch, so that a
broken torch is a fact and not a crash. Standard library only, so that it works where packages are missing.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

GIB = 2**30
SHM = Path("/dev/shm")

TORCH_PROBE = """
import json, torch, torch.distributed as dist
cuda = torch.cuda.is_available()
print(json.dumps({
    "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if cuda else [],
    "gloo": dist.is_available() and dist.is_gloo_available(),
    "nccl": dist.is_available() and dist.is_nccl_available(),
}))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Torch:
    """What importing torch showed; `error` holds the last line of a failure."""

    version: str = ""
    gpus: tuple[str, ...] = ()
    gloo: bool = False
    nccl: bool = False
    error: str = ""


def version_of(name: str) -> str:
    """Installed version of a distribution by its metadata, "" if there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def look_at_torch(timeout_s: float = 120.0) -> Torch:
    """Import torch in a process of its own and say what it can do."""
    version = version_of("torch")
    if not version:
        return Torch(error="torch is not installed")
    try:
        done = subprocess.run(
            [sys.executable, "-c", TORCH_PROBE],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Torch(version=version, error=f"import torch took longer than {timeout_s:.0f} s")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return Torch(version=version, error=f"import torch failed: {last}")
    facts = json.loads(done.stdout.splitlines()[-1])
    return Torch(version=version, gpus=tuple(facts["gpus"]), gloo=facts["gloo"], nccl=facts["nccl"])


def memory_bytes() -> tuple[int, int]:
    """Total and available memory in bytes, as far as this control group may use it; zeros where unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0, 0
    facts = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    total, available = facts["MemTotal"], facts["MemAvailable"]
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return total, available
    if limit.isdigit():
        total, available = min(total, int(limit)), min(available, max(int(limit) - used, 0))
    return total, available


def shm_free() -> int:
    """Free bytes of /dev/shm, 0 where there is none."""
    return shutil.disk_usage(SHM).free if SHM.is_dir() else 0


def look_at_system(torch: Torch) -> dict[str, str]:
    """Words about the machine."""
    total, available = memory_bytes()
    disk = shutil.disk_usage(Path.cwd())
    facts = {
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": f"{platform.system()} {platform.machine()}",
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{available / GIB:.1f} GiB available of {total / GIB:.1f}",
        "disk here": f"{disk.free / GIB:.1f} GiB free",
        "gpus": ", ".join(torch.gpus) or "none",
    }
    if SHM.is_dir():
        usage = shutil.disk_usage(SHM)
        facts["/dev/shm"] = f"{usage.free / GIB:.1f} GiB free of {usage.total / GIB:.1f}"
    return facts
