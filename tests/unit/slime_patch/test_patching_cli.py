"""The commands as a user types them: what they print, their exit status, what they load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.slime_miniature import contents, copy_checkout

from slime_patch.patching.cli import main


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copy_checkout(tmp_path / "slime")


def test_apply_check_and_revert_say_what_they_did(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fresh = contents(root)
    assert main(["check", str(root)]) == 0
    assert "supported, not applied" in capsys.readouterr().out
    assert main(["apply", str(root)]) == 0
    assert f"patched {root / 'train.py'}" in capsys.readouterr().out
    assert main(["apply", str(root)]) == 0
    assert "everything is in place" in capsys.readouterr().out
    assert main(["check", str(root)]) == 0
    assert "supported, applied" in capsys.readouterr().out
    assert main(["revert", str(root)]) == 0
    assert f"restored {root / 'train.py'}" in capsys.readouterr().out
    assert main(["revert", str(root)]) == 0
    assert "nothing is inserted" in capsys.readouterr().out
    assert contents(root) == fresh


def test_check_names_what_is_missing_and_fails(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = root / "train.py"
    script.write_bytes(script.read_bytes().replace(b"def train(", b"def training("))
    assert main(["check", str(root)]) == 1
    said = capsys.readouterr().out
    assert "not supported" in said
    assert "train.py: has no function train(), where `finish_tracking(args)` is looked for" in said


def test_a_refusal_is_an_error_on_stderr(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = root / "train.py"
    script.write_bytes(script.read_bytes().replace(b"def train(", b"def training("))
    for command in ("apply", "diff"):
        assert main([command, str(root)]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(
            "error: this checkout of slime cannot be patched; no file was changed\n"
        )
    assert main(["check", str(root / "slime")]) == 2
    assert "is not a checkout of slime" in capsys.readouterr().err


@pytest.mark.parametrize("crlf", [False, True])
def test_diff_is_what_apply_does_in_a_form_that_git_applies(
    root: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], crlf: bool
) -> None:
    script = root / "train.py"
    data = script.read_bytes().removesuffix(b"\n")
    script.write_bytes(data.replace(b"\n", b"\r\n") if crlf else data)
    fresh = contents(root)
    assert main(["diff", str(root)]) == 0
    diff = capfdbinary.readouterr().out
    assert contents(root) == fresh
    assert main(["apply", str(root)]) == 0
    patched = contents(root)
    assert main(["revert", str(root)]) == 0
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=root, input=diff, check=True, timeout=20)
    assert contents(root) == patched
    capfdbinary.readouterr()
    assert main(["diff", str(root)]) == 0
    assert capfdbinary.readouterr().out == b""


def test_patching_loads_neither_torch_nor_ray_nor_slime(root: Path) -> None:
    program = (
        "import sys\n"
        "from slime_patch.patching import cli\n"
        "status = cli.main(['apply', sys.argv[1]])\n"
        "names = {name.split('.')[0] for name in sys.modules}\n"
        "raise SystemExit(status or sorted(names & {'torch', 'ray', 'sglang', 'slime'}) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(root)], check=False, timeout=60)
    assert done.returncode == 0
