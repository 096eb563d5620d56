"""Makes the local environments: .venv with everything pinned, and the thin .venv-312 for Python 3.12.

usage: scripts/setup.sh                .venv: torch, the real SGLang on a CPU, live-eval (editable), the tools
       scripts/setup.sh --py312        .venv-312: live-eval's own small dependencies and pytest, no torch
       scripts/setup.sh --sglang-next  .venv-sglang-next: another SGLang over .venv, for engines only
       scripts/setup.sh --find X.Y     print the interpreter that would be used, exit 1 if there is none

An environment is complete if its stamp says so; the stamp is written last and depends on the lock files,
pyproject.toml, the names of the packages and the place of the checkout. An installation that was cut short
leaves no stamp but a mark, and starts afresh. Standard library only, and no syntax newer than Python 3.7.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from find_python import NoPython, find
from pip_runner import PipFailed, pip_install

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"
BUILD = ROOT / "build"
LOG = BUILD / "setup.log"
STAMP = ".live-eval-stamp.json"
MARK = ".live-eval-installing"
GB = 1e9


class SetupError(Exception):
    """The environment cannot be made; the message says what to do."""


class Environment:
    """One virtual environment: where it is, which Pythons it may have, what goes into it."""

    def __init__(
        self,
        name: str,
        versions: tuple[str, ...],
        locks: tuple[str, ...],
        needs_gb: float,
        *,
        over: Environment | None = None,
    ) -> None:
        """`over`: another environment, whose packages this one has where it has none of its own."""
        self.over = over
        self.path = ROOT / name
        self.versions = versions
        self.locks = [LOCKS / lock for lock in locks]
        self.needs_gb = needs_gb
        self.python = self.path / "bin" / "python"

    @property
    def stamp(self) -> dict[str, str]:
        """What a complete environment's stamp says."""
        digest = hashlib.sha256()
        below = self.over.locks if self.over else []
        for path in [*self.locks, *below, ROOT / "pyproject.toml"]:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        # An editable install knows the packages that were there when it was made.
        digest.update(" ".join(sorted(init.parent.name for init in ROOT.glob("*/__init__.py"))).encode())
        return {"inputs": digest.hexdigest(), "place": str(self.path)}

    def read_stamp(self) -> dict[str, str]:
        """The stamp on disk; {} if there is none."""
        try:
            return json.loads((self.path / STAMP).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def complete(self) -> bool:
        """Whether nothing is to be done."""
        return self.read_stamp() == self.stamp and self.python.exists()


MAIN = Environment(
    ".venv",
    ("3.11", "3.12"),
    (
        "torch.txt",
        "core.txt",
        "eval.txt",
        "engine.txt",
        "extras.txt",
        "patch.txt",
        "test.txt",
        "page.txt",
        "check.txt",
    ),
    5.0,
)
PY312 = Environment(".venv-312", ("3.12",), ("core.txt", "eval.txt", "patch.txt", "test.txt"), 0.9)
SGLANG_NEXT = Environment(".venv-sglang-next", ("3.11", "3.12"), ("engine-next.txt",), 0.8, over=MAIN)


def count_pins(lock: Path) -> int:
    """Number of packages that a lock file names."""
    return sum("==" in line.split("#")[0] for line in lock.read_text(encoding="utf-8").splitlines())


def check_disk(env: Environment) -> None:
    """Refuse to begin what cannot end. Raises SetupError with the figures."""
    needs = env.needs_gb if not env.python.exists() else 1.0
    for what, place, need in [
        ("the environment", ROOT, needs),
        ("pip's downloads", Path(tempfile.gettempdir()), 0.8),
    ]:
        free = shutil.disk_usage(str(place)).free / GB
        if free < need:
            hint = "" if place == ROOT else " TMPDIR=/another/place make setup uses another one."
            raise SetupError(
                f"{what} needs about {need:.1f} GB in {place}, where {free:.1f} GB are free.{hint}"
            )


def base_of(env: Environment) -> str:
    """Version of the environment's interpreter if it and its pip still run, else ""."""
    try:
        done = subprocess.run(
            [str(env.python), "-c", "import sys, pip; print('%d.%d' % sys.version_info[:2])"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode().strip() if done.returncode == 0 else ""


def why_afresh(env: Environment) -> str:
    """Why what is there cannot be built upon; "" if it can."""
    if (env.path / MARK).exists():
        return "the last installation did not finish"
    if base_of(env) not in env.versions:
        return f"its Python does not run, or is not {' or '.join(env.versions)}"
    place = env.read_stamp().get("place", str(env.path))
    return "" if place == str(env.path) else f"it was made at {place} and does not work from here"


def make_venv(env: Environment) -> None:
    """Create the empty environment, or keep the one that is there. Raises SetupError, NoPython."""
    if env.path.exists():
        reason = why_afresh(env)
        if not reason:
            say(f"using {env.path.name}, which is there")
            return
        say(f"removing {env.path.name}: {reason}")
        shutil.rmtree(str(env.path))
    # Compiled packages of the environment below must fit this one's Python.
    base = find(*((base_of(env.over),) if env.over else env.versions))
    say(f"making {env.path.name} with {base}")
    env.path.mkdir()
    (env.path / MARK).touch()
    command = [base, "-m", "venv", str(env.path)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, close_fds=False
    )
    if done.returncode != 0:
        raise SetupError(f"{base} -m venv failed:\n{done.stdout.decode('utf-8', 'replace').strip()}")
    if env.over:
        lay_over(env, env.over)


def lay_over(env: Environment, below: Environment) -> None:
    """Put the packages of `below` after the environment's own on its import path."""
    (own,) = env.path.glob("lib/python*/site-packages")
    (others,) = below.path.glob("lib/python*/site-packages")
    (own / "live-eval-below.pth").write_text(f"{others}\n", encoding="utf-8")


def steps(env: Environment) -> list[tuple[str, list[str], int]]:
    """What to install, in order: (words, pip arguments, number of packages)."""
    rest = [lock for lock in env.locks if lock.name != "torch.txt"]
    plan: list[tuple[str, list[str], int]] = []
    if len(rest) < len(env.locks):
        torch = LOCKS / "torch.txt"
        plan.append(("torch (with its dependencies)", ["-r", str(torch)], count_pins(torch)))
    num = sum(map(count_pins, rest))
    words = f"{num} packages from {', '.join(lock.name for lock in rest)}"
    plan.append((words, ["--no-deps", *(part for lock in rest for part in ("-r", str(lock)))], num))
    if env is MAIN:
        plan.append(("live-eval (editable)", ["--no-deps", "--no-build-isolation", "-e", str(ROOT)], 1))
    return plan


def without_triton(env: Environment, arguments: list[str]) -> list[str]:
    """The same arguments, without our triton where the torch build brings its own, as CUDA builds do."""
    probe = "import verify_env; raise SystemExit(not verify_env.torch_brings_triton())"
    scripts = str(ROOT / "scripts")
    if subprocess.run([str(env.python), "-c", probe], cwd=scripts, check=False).returncode != 0:
        return arguments
    trimmed = BUILD / "engine-without-triton.txt"
    lines = (LOCKS / "engine.txt").read_text(encoding="utf-8").splitlines()
    trimmed.write_text("\n".join(line for line in lines if not line.startswith("triton==")), encoding="utf-8")
    return [str(trimmed) if part == str(LOCKS / "engine.txt") else part for part in arguments]


def verify(env: Environment) -> None:
    """Every pinned package is there with all its files. Raises SetupError."""
    command = [str(env.python), str(ROOT / "scripts" / "verify_env.py"), *map(str, env.locks)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        words = done.stdout.decode("utf-8", "replace").strip()
        raise SetupError(f"the installation is not whole; run make again, it will start afresh:\n{words}")


def compile_all(env: Environment) -> None:
    """Bytecode of all that is installed, on every core, so that no later start waits for it.

    A file that does not compile is left to who imports it: packages ship templates for other Pythons.
    """
    say("compiling")
    (packages,) = env.path.glob("lib/python*/site-packages")
    command = [str(env.python), "-m", "compileall", "-q", "-q", "-j", "0", str(packages)]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def install(env: Environment) -> None:
    """Bring the environment to what the lock files say, and stamp it.

    Raises SetupError, PipFailed, NoPython.
    """
    began = time.monotonic()
    check_disk(env)
    make_venv(env)
    (env.path / STAMP).unlink() if (env.path / STAMP).exists() else None
    (env.path / MARK).touch()
    plan = steps(env)
    for index, (words, arguments, num) in enumerate(plan, start=1):
        say(f"[{index}/{len(plan)}] installing {words}")
        try:
            pip_install(env.python, without_triton(env, arguments), LOG, num)
        except PipFailed as error:
            if error.clean:
                (env.path / MARK).unlink()
            raise
    verify(env)
    (env.path / STAMP).write_text(json.dumps(env.stamp), encoding="utf-8")
    (env.path / MARK).unlink()
    compile_all(env)
    say(f"{env.path.name} is ready after {time.monotonic() - began:.0f} s")


def say(words: str) -> None:
    """One line of progress."""
    print("setup: " + words, flush=True)


def ensure(env: Environment) -> None:
    """Do nothing if the environment is complete, else install it; one at a time in a checkout."""
    if env.complete():
        return
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "setup.lock").open("w") as lock:
        # What this process starts inherits the lock (close_fds=False there): if it is killed, the next
        # one waits for an orphaned pip to end before it touches the environment.
        os.set_inheritable(lock.fileno(), True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("waiting for another setup in this checkout to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not env.complete():
            LOG.write_bytes(b"")
            install(env)


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    try:
        if arguments[:1] == ["--find"]:
            print(find(*arguments[1:]))
        elif sys.platform != "linux":
            raise SetupError(f"live-eval runs on Linux; this is {sys.platform}.")
        else:
            chosen = {"--py312": PY312, "--sglang-next": SGLANG_NEXT}.get("".join(arguments[:1]), MAIN)
            if chosen.over:
                ensure(chosen.over)
            ensure(chosen)
    except (SetupError, PipFailed, NoPython) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nerror: interrupted; run make again, it will start afresh.", file=sys.stderr)
        return 130
    except OSError as error:
        if error.errno not in (28, 122):  # no space, quota
            raise
        print(
            f"error: {error.strerror}: {error.filename}. Free some space and run make again.", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    os.chdir(str(ROOT))
    sys.exit(main(sys.argv[1:]))
