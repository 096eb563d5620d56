"""Setup: what is found, what is refused with which words, what an interrupted installation becomes."""

from __future__ import annotations

import shutil
import sys
from collections import namedtuple
from pathlib import Path

import find_python
import pip_runner
import pytest
import setup_env
import verify_env

Usage = namedtuple("Usage", "total used free")
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def fake_python(path: Path, *, version: str, venv: bool = True, runs: bool = True) -> str:
    """An executable that answers the probe as Python `version` would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = f"echo {version}" + ("; echo ok" if venv else "; exit 1")
    path.write_text(
        f"#!/bin/sh\n{words if runs else 'echo no such version >&2; exit 127'}\n", encoding="utf-8"
    )
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def no_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home and a PATH without any Python, and a `candidates` that looks nowhere else."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    monkeypatch.delenv("PYTHON", raising=False)
    real = find_python.candidates
    monkeypatch.setattr(
        find_python, "candidates", lambda version: [p for p in real(version) if p.startswith(str(tmp_path))]
    )
    return tmp_path


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> setup_env.Environment:
    """An environment below a directory of its own, with one lock file."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "core.txt").write_text("# c\nrich==15.0.0   # tables\nh11==0.16.0\n")
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)
    monkeypatch.setattr(setup_env, "LOCKS", tmp_path / "requirements")
    return setup_env.Environment(".venv", (HERE,), ("core.txt",), 5.0)


# --- finding Python -------------------------------------------------------------------------


def test_the_first_version_asked_for_wins_wherever_it_is(no_python: Path) -> None:
    fake_python(no_python / "bin" / "python3.12", version="3.12")
    pyenv = fake_python(no_python / ".pyenv" / "versions" / "3.11.7" / "bin" / "python3.11", version="3.11")
    assert find_python.find("3.11", "3.12") == pyenv


def test_a_shim_that_leads_nowhere_is_passed_over(no_python: Path) -> None:
    fake_python(no_python / "bin" / "python3.11", version="3.11", runs=False)
    good = fake_python(no_python / "bin" / "python3.12", version="3.12")
    assert find_python.find("3.11", "3.12") == good


def test_a_python_of_another_version_is_named_in_the_refusal(no_python: Path) -> None:
    old = fake_python(no_python / "bin" / "python3", version="3.8")
    with pytest.raises(find_python.NoPython, match=r"no Python 3\.11 or 3\.12 found") as caught:
        find_python.find("3.11", "3.12")
    assert f"{old} is 3.8" in str(caught.value)


def test_a_python_that_cannot_make_environments_says_which_package_to_install(no_python: Path) -> None:
    fake_python(no_python / "bin" / "python3.11", version="3.11", venv=False)
    with pytest.raises(find_python.NoPython, match=r"apt install python3\.11-venv"):
        find_python.find("3.11", "3.12")


def test_a_forced_python_is_the_only_one_considered(no_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_python(no_python / "bin" / "python3.11", version="3.11")
    monkeypatch.setenv("PYTHON", fake_python(no_python / "mine", version="3.9"))
    with pytest.raises(find_python.NoPython, match=r"found at PYTHON="):
        find_python.find("3.11", "3.12")


# --- what is there already ------------------------------------------------------------------


def test_a_stamp_with_other_inputs_or_another_place_is_not_complete(env: setup_env.Environment) -> None:
    env.python.parent.mkdir(parents=True)
    env.python.touch()
    stamp = env.path / setup_env.STAMP
    stamp.write_text(setup_env.json.dumps(env.stamp))
    assert env.complete()
    env.locks[0].write_text("rich==15.0.1\n")
    assert not env.complete()
    stamp.write_text(setup_env.json.dumps({**env.stamp, "place": "/elsewhere"}))
    assert not env.complete()
    stamp.write_text("{")
    assert not env.complete()


def test_an_interrupted_installation_starts_afresh(env: setup_env.Environment) -> None:
    env.path.mkdir()
    (env.path / setup_env.MARK).touch()
    assert setup_env.why_afresh(env) == "the last installation did not finish"


def test_an_environment_whose_python_is_gone_starts_afresh(env: setup_env.Environment) -> None:
    env.python.parent.mkdir(parents=True)
    env.python.symlink_to("/no/such/python")
    assert "does not run" in setup_env.why_afresh(env)


def test_an_environment_that_was_moved_starts_afresh(
    env: setup_env.Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.path.mkdir()
    monkeypatch.setattr(setup_env, "base_of", lambda _: HERE)
    (env.path / setup_env.STAMP).write_text('{"place": "/before/.venv"}')
    assert "made at /before/.venv" in setup_env.why_afresh(env)


def test_a_sound_environment_is_built_upon(
    env: setup_env.Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.path.mkdir()
    monkeypatch.setattr(setup_env, "base_of", lambda _: HERE)
    assert setup_env.why_afresh(env) == ""


def test_too_little_disk_is_refused_with_both_figures(
    env: setup_env.Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10_000_000_000, 8_800_000_000, 1_200_000_000))
    with pytest.raises(setup_env.SetupError, match=r"needs about 5\.0 GB in .*, where 1\.2 GB are free"):
        setup_env.check_disk(env)


# --- what is installed ----------------------------------------------------------------------


def test_only_torch_is_installed_with_its_dependencies() -> None:
    plan = setup_env.steps(setup_env.MAIN)
    assert [("--no-deps" in arguments) for _, arguments, _ in plan] == [False, True, True]
    assert plan[0][1][-1].endswith("torch.txt")


def test_all_is_compiled_at_the_end_and_a_file_that_cannot_be_harms_nothing(
    env: setup_env.Environment,
) -> None:
    packages = env.path / "lib" / f"python{HERE}" / "site-packages" / "some"
    packages.mkdir(parents=True)
    (packages / "good.py").write_text("x = 1\n")
    (packages / "template.py").write_text("print {{ name }}\n")
    env.python = Path(sys.executable)
    setup_env.compile_all(env)
    assert [path.name.split(".")[0] for path in (packages / "__pycache__").iterdir()] == ["good"]


def test_every_lock_file_pins_every_line_and_none_contradicts_another() -> None:
    seen: dict[str, str] = {}
    (apart,) = setup_env.SGLANG_NEXT.locks
    for lock in sorted(setup_env.LOCKS.glob("*.txt"), key=lambda lock: lock == apart):
        pinned = verify_env.pins(lock)
        assert len(pinned) == setup_env.count_pins(lock) > 0
        lines = [line.split("#")[0].strip() for line in lock.read_text(encoding="utf-8").splitlines()]
        assert {line for line in lines if line} == {f"{name}=={version}" for name, version in pinned.items()}
        for name, version in pinned.items():
            if lock == apart:  # lists what differs, and nothing else
                assert seen[name] != version
            else:
                assert seen.setdefault(name, version) == version


def test_every_lock_file_is_part_of_an_environment() -> None:
    locks = [*setup_env.MAIN.locks, *setup_env.SGLANG_NEXT.locks]
    assert {lock.name for lock in locks} == {lock.name for lock in setup_env.LOCKS.glob("*.txt")}


def test_an_environment_over_another_one_has_its_packages_after_its_own(env: setup_env.Environment) -> None:
    (setup_env.LOCKS / "next.txt").write_text("rich==16.0.0\n")
    above = setup_env.Environment(".venv-next", (HERE,), ("next.txt",), 1.0, over=env)
    for place in (env.path, above.path):
        (place / "lib" / "python3" / "site-packages").mkdir(parents=True)
    setup_env.lay_over(above, env)
    (pth,) = above.path.rglob("*.pth")
    assert pth.read_text().strip() == str(env.path / "lib" / "python3" / "site-packages")


def test_an_environment_is_made_again_when_what_lies_below_it_has_changed(env: setup_env.Environment) -> None:
    (setup_env.LOCKS / "next.txt").write_text("rich==16.0.0\n")
    above = setup_env.Environment(".venv-next", (HERE,), ("next.txt",), 1.0, over=env)
    before = above.stamp
    env.locks[0].write_text("rich==15.0.1\n")
    assert above.stamp != before


def test_problems_name_what_is_absent_and_what_has_another_version() -> None:
    found = verify_env.problems({"no-such-package-here": "1.0", "pytest": "0.1"})
    assert found[0] == "no-such-package-here 1.0 is not installed"
    assert found[1].startswith("pytest is ")
    assert found[1].endswith(", not 0.1")


# --- what pip's failures mean ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "words", "clean"),
    [
        ("WARNING: Retrying (Retry(total=4, NewConnectionError", "index cannot be reached", True),
        ("Collecting x\nERROR: [Errno 28] No space left on device", "disk filled up", False),
        ("ERROR: No matching distribution found for torch==2.13.0", "has no torch==2.13.0", True),
        ("Installing collected packages: a, b\nsomething broke", "something broke", False),
        ("something broke early", "something broke early", True),
    ],
)
def test_a_failure_of_pip_says_what_to_do(output: str, words: str, clean: bool) -> None:
    error = pip_runner.failure(output, Path("build/setup.log"))
    assert words in str(error)
    assert error.clean is clean


def test_pip_installs_into_the_environment_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/x")
    monkeypatch.setenv("PIP_TARGET", "/x")
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    settings = pip_runner.pip_environment()
    assert {"PYTHONPATH", "PIP_TARGET"}.isdisjoint(settings)
    assert settings["PIP_INDEX_URL"] == "https://mirror.example/simple"
