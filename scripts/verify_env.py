"""Compares the environment it runs in with the lock files: each package there, at its version, whole.

usage: python verify_env.py requirements/a.txt ...     prints one line a problem, exits 1 if there are any

Run by the environment's own interpreter. It knows nothing of pip: it reads the metadata that an
installation leaves.
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path


def pins(lock_file: Path) -> dict[str, str]:
    """Package name -> exact version, as listed in one lock file."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s#]+)", lock_file.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(found)


def missing_files(dist: metadata.Distribution) -> list[str]:
    """Files of the package's RECORD that are not there (an installation was cut short)."""
    files = dist.files
    if files is None:
        return ["RECORD"]
    return [str(f) for f in files if f.suffix != ".pyc" and not Path(str(f.locate())).exists()]


def problems(wanted: dict[str, str]) -> list[str]:
    """One sentence for each package that is absent, of another version, or incomplete."""
    found: list[str] = []
    for name, version in wanted.items():
        try:
            dist = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            found.append(f"{name} {version} is not installed")
            continue
        if dist.version.split("+")[0] != version:
            found.append(f"{name} is {dist.version}, not {version}")
        elif gone := missing_files(dist):
            found.append(f"{name} {version} lacks {len(gone)} of its files, for example {gone[0]}")
    return found


def main() -> int:
    """Check the lock files named on the command line."""
    wanted: dict[str, str] = {}
    for argument in sys.argv[1:]:
        wanted |= pins(Path(argument))
    if torch_brings_triton():
        wanted.pop("triton", None)
    found = problems(wanted)
    print("\n".join(found))
    return 1 if found else 0


def torch_brings_triton() -> bool:
    """Whether the installed torch names an exact triton of its own, as CUDA builds do."""
    try:
        requires = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:
        return False
    return any(re.match(r"triton\s*==", requirement) for requirement in requires)


if __name__ == "__main__":
    sys.exit(main())
