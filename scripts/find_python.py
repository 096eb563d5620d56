"""Finds a Python interpreter of a given minor version that can make virtual environments.

Knows where interpreters usually are (PATH, pyenv, uv); knows nothing of what is installed into the
environment. A candidate counts only after it ran: a pyenv shim may be on PATH and still lead nowhere.
Standard library only, and no syntax newer than Python 3.7, since it must run, and explain itself, on a
machine whose Python is too old.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess

PROBE = "import sys; print('%d.%d' % sys.version_info[:2]); import venv, ensurepip; print('ok')"


class NoPython(Exception):
    """No usable interpreter; the message says what was looked for and what to do."""


def candidates(version: str) -> list[str]:
    """Paths that may be Python `version` ("3.11"), best first, without duplicates."""
    found = [shutil.which("python" + version)]
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    uv = os.path.expanduser("~/.local/share/uv/python")
    for pattern in (
        f"{pyenv}/versions/{version}.*/bin/python{version}",
        f"{uv}/cpython-{version}.*/bin/python{version}",
        "/usr/bin/python" + version,
        "/usr/local/bin/python" + version,
    ):
        found += sorted(glob.glob(pattern), reverse=True)
    found += [shutil.which("python3"), shutil.which("python")]
    return list(dict.fromkeys(path for path in found if path))


def probe(path: str) -> tuple[str, bool]:
    """Version ("3.11") of the interpreter and whether it can make environments; ("", False) if it fails."""
    try:
        done = subprocess.run(
            [path, "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", False
    lines = done.stdout.decode("utf-8", "replace").split()
    return (lines[0] if lines else ""), lines[-1:] == ["ok"]


def find(*versions: str) -> str:
    """Path of the first interpreter of one of `versions`, in that order; PYTHON in the environment overrides.

    Raises NoPython.
    """
    forced = os.environ.get("PYTHON")
    seen: list[str] = []
    without_venv = ""
    for version in versions:
        for path in [shutil.which(forced) or forced] if forced else candidates(version):
            actual, usable = probe(path)
            if actual == version and usable:
                return path
            if actual == version:
                without_venv = path
            if actual:
                seen.append(path + " is " + actual)
    raise NoPython(_explain(versions, seen, without_venv, forced))


def _explain(versions: tuple[str, ...], seen: list[str], without_venv: str, forced: str | None) -> str:
    wanted = " or ".join(versions)
    if without_venv:
        return (
            f"{without_venv} cannot make virtual environments (its venv or ensurepip module is missing).\n"
            f"On Debian and Ubuntu: apt install python{versions[0]}-venv. Or use another Python: "
            f"PYTHON=/path/to/python{versions[0]} make setup"
        )
    lines = [f"no Python {wanted} found" + (f" at PYTHON={forced}" if forced else "") + "."]
    if seen:
        lines.append("Found: " + ", ".join(dict.fromkeys(seen)) + ".")
    first = versions[0]
    lines.append(
        f"Install Python {first} with your package manager or with pyenv (pyenv install {first}), then run\n"
        f"make again; PYTHON=/path/to/python{first} make setup uses one that is not on PATH."
    )
    return "\n".join(lines)
