"""check, apply and revert on slime's history; docs/slime_patch.md says what is supported, and is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes.slime_history import Commit, export, git, milestones
from fakes.slime_miniature import MINIATURE, contents

from slime_patch.patching.anchors import FILES
from slime_patch.patching.checkout import Checkout
from slime_patch.patching.cli import main
from slime_patch.patching.plan import examine

pytestmark = pytest.mark.timeout(1200)
DOCS = Path(__file__).resolve().parents[2] / "docs" / "slime_patch.md"
ROW = re.compile(
    r"^\| (?P<name>[^|]+) \| (?P<commit>[0-9a-f]{7,}) of (?P<date>[0-9-]+) \| (?P<verdict>[^|]+) \|$"
)


def verdict(root: Path) -> str:
    """The table's last cell for an exported commit."""
    problems = examine(Checkout.open(root)).problems
    return "; ".join(f"`{problem.file}` {problem.words}" for problem in problems) or "supported"


def rows() -> list[dict[str, str]]:
    matches = [ROW.match(line) for line in DOCS.read_text(encoding="utf-8").splitlines()]
    return [match.groupdict() for match in matches if match]


@pytest.fixture(scope="session")
def history(slime_dir: Path) -> list[Commit]:
    return milestones(slime_dir)


def test_each_milestone_is_patched_and_restored_or_refused_unchanged(
    slime_dir: Path, history: list[Commit], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in history:
        root = export(slime_dir, each.commit, tmp_path / each.name)
        fresh = contents(root)
        supported = main(["check", str(root)]) == 0
        assert main(["apply", str(root)]) == (0 if supported else 2), each
        whole = contents(root)
        changed = {name for name in whole if whole[name] != fresh[name]}
        assert changed == (set(FILES) if supported else set()), each
        if supported:
            assert main(["apply", str(root)]) == 0
            assert contents(root) == whole, each
            assert main(["check", str(root)]) == 0
        assert main(["revert", str(root)]) == 0
        assert contents(root) == fresh, each
        print(each.name, each.commit, "supported" if supported else "not supported")
    capsys.readouterr()


def test_the_newest_commit_is_supported(slime_dir: Path, history: list[Commit], tmp_path: Path) -> None:
    newest = next(each for each in history if each.name == "newest")
    assert verdict(export(slime_dir, newest.commit, tmp_path / "newest")) == "supported"


def test_the_table_in_the_docs_is_right(slime_dir: Path, history: list[Commit], tmp_path: Path) -> None:
    written = rows()
    assert written
    for row in written:
        root = export(slime_dir, row["commit"], tmp_path / row["commit"])
        assert row["verdict"] == verdict(root), row["name"]
    newest = git(slime_dir, "rev-parse", "HEAD").decode()
    if newest.startswith(written[-1]["commit"]):  # an older or newer checkout has other milestones
        assert [(row["name"], row["commit"], row["date"]) for row in written] == [
            (each.name, each.commit, each.date) for each in history
        ]


def test_the_miniature_has_the_places_that_the_checkout_has(
    slime_dir: Path, history: list[Commit], tmp_path: Path
) -> None:
    real = export(slime_dir, history[-1].commit, tmp_path / "real")
    assert examine(Checkout.open(MINIATURE)) == examine(Checkout.open(real))
