"""A whole checkout: all files or none, twice as once, half-way repaired, and back byte for byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.slime_miniature import contents, copy_checkout

from live_eval.errors import ConfigError
from slime_patch.patching.anchors import ACTOR_GROUP, ARGUMENTS, FILES, PLACEMENT
from slime_patch.patching.checkout import Checkout
from slime_patch.patching.plan import carry_out, changes_to_apply, changes_to_revert, examine
from slime_patch.patching.problems import PatchRefused
from slime_patch.patching.replace import Change, replace_all

DIES_BEFORE_A_RENAME = """
import os, sys
from slime_patch.patching import cli
rename, left = os.replace, int(sys.argv[3])
def dying(old, new):
    global left
    if left == 0:
        os._exit(9)
    left -= 1
    rename(old, new)
os.replace = dying
cli.main(sys.argv[1:3])
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return copy_checkout(tmp_path / "slime")


def apply(root: Path) -> set[str]:
    """Apply; the names of the files that were changed."""
    checkout = Checkout.open(root)
    changes = changes_to_apply(checkout)
    carry_out(checkout, changes)
    return set(changes)


def revert(root: Path) -> set[str]:
    checkout = Checkout.open(root)
    changes = changes_to_revert(checkout)
    carry_out(checkout, changes)
    return set(changes)


def edit(root: Path, file: str, old: str, new: str) -> None:
    text = (root / file).read_bytes().decode()
    assert old in text
    (root / file).write_bytes(text.replace(old, new, 1).encode())


def test_apply_changes_three_files_and_revert_restores_every_byte(root: Path) -> None:
    before = contents(root)
    assert apply(root) == set(FILES) == {"train.py", "train_async.py", ARGUMENTS}
    assert examine(Checkout.open(root)).condition == "supported, applied"
    assert revert(root) == set(FILES)
    assert contents(root) == before
    assert examine(Checkout.open(root)).condition == "supported, not applied"
    assert revert(root) == set()


def test_apply_twice_changes_nothing(root: Path) -> None:
    apply(root)
    before = contents(root)
    stamps = {path: path.stat().st_mtime_ns for path in root.rglob("*.py")}
    assert apply(root) == set()
    assert contents(root) == before
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*.py")} == stamps


def test_edits_made_before_and_after_apply_survive_revert(root: Path) -> None:
    edit(root, "train.py", "import parse_args\n", "import parse_args\nimport os\n")
    mine = contents(root)
    apply(root)
    edit(
        root,
        "train.py",
        "    actor_model.update_weights()\n",
        "    actor_model.update_weights()\n    print(1)\n",
    )
    revert(root)
    edit(root, "train.py", "    print(1)\n", "")
    assert contents(root) == mine


def test_one_edited_anchor_and_no_file_is_touched(root: Path) -> None:
    edit(root, "train_async.py", "finish_tracking(args)\n\n\nif", "finish_tracking(args, 1)\n\n\nif")
    before = contents(root)
    with pytest.raises(PatchRefused, match=r"train_async\.py:30: `finish_tracking\(args\)`"):
        apply(root)
    assert contents(root) == before


def test_one_edited_insertion_and_nothing_is_reverted_or_applied(root: Path) -> None:
    apply(root)
    edit(root, "train.py", "live_eval.finish(args)", "live_eval.finish(None)")
    before = contents(root)
    for command in (apply, revert):
        with pytest.raises(PatchRefused, match=r"train\.py:\d+: a local edit touches the insertion `finish`"):
            command(root)
    assert contents(root) == before
    assert examine(Checkout.open(root)).condition == "not supported"


def test_what_an_earlier_version_inserted_is_replaced(root: Path) -> None:
    from slime_patch.patching.state import begin_marker, end_marker

    body = [b"print('an earlier hook')"]
    block = b"\n".join(b"    " + line for line in [begin_marker("start", body), *body, end_marker("start")])
    fresh = contents(root)
    edit(root, "train.py", "    # the models\n", block.decode() + "\n    # the models\n")
    assert "applied in part or by another version" in examine(Checkout.open(root)).condition
    apply(root)
    assert b"an earlier hook" not in (root / "train.py").read_bytes()
    revert(root)
    assert contents(root) == fresh


def test_a_file_that_was_put_back_by_hand_is_patched_again(root: Path) -> None:
    original = (root / "train.py").read_bytes()
    apply(root)
    whole = contents(root)
    (root / "train.py").write_bytes(original)
    assert examine(Checkout.open(root)).condition.startswith("supported, applied in part")
    assert apply(root) == {"train.py"}
    assert contents(root) == whole


@pytest.mark.parametrize("repair", ["apply", "revert"])
@pytest.mark.parametrize(("command", "renames"), [("apply", 0), ("apply", 2), ("revert", 1)])
def test_a_kill_half_way_is_repaired_by_running_either_command_again(
    root: Path, command: str, renames: int, repair: str
) -> None:
    fresh = contents(root)
    apply(root)
    whole = contents(root)
    if command == "apply":
        revert(root)
    done = subprocess.run(
        [sys.executable, "-c", DIES_BEFORE_A_RENAME, command, str(root), str(renames)],
        check=False,
        timeout=60,
    )
    assert done.returncode == 9
    assert any(name.endswith(".live-eval-tmp") for name in contents(root))
    if repair == "apply":
        apply(root)
        assert contents(root) == whole
    else:
        revert(root)
        assert contents(root) == fresh


def test_a_failure_between_two_renames_puts_the_first_file_back(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"1")
    second.write_bytes(b"edited meanwhile")
    changes = {first: Change(old=b"1", new=b"one"), second: Change(old=b"2", new=b"two")}
    with pytest.raises(ConfigError, match="second was changed by someone else meanwhile"):
        replace_all(changes)
    assert contents(tmp_path) == {"first": b"1", "second": b"edited meanwhile"}


def test_a_read_only_file_is_refused_before_anything_is_written(root: Path) -> None:
    (root / "train_async.py").chmod(0o444)
    before = contents(root)
    with pytest.raises(ConfigError, match=r"train_async\.py .* is read-only"):
        apply(root)
    assert contents(root) == before


def test_mode_stays_and_a_hard_link_elsewhere_is_not_written_through(root: Path, tmp_path: Path) -> None:
    (root / "train.py").chmod(0o750)
    os.link(root / "train.py", tmp_path / "linked.py")
    original = (root / "train.py").read_bytes()
    apply(root)
    assert (root / "train.py").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "linked.py").read_bytes() == original


def test_a_link_inside_of_the_checkout_is_followed_and_one_that_leads_out_is_refused(
    root: Path, tmp_path: Path
) -> None:
    (root / "train.py").rename(root / "slime" / "train_sync.py")
    (root / "train.py").symlink_to("slime/train_sync.py")
    apply(root)
    assert (root / "train.py").is_symlink()
    assert b">>> live-eval" in (root / "slime" / "train_sync.py").read_bytes()
    revert(root)
    (root / "train_async.py").rename(tmp_path / "elsewhere.py")
    (root / "train_async.py").symlink_to(tmp_path / "elsewhere.py")
    with pytest.raises(ConfigError, match="outside of the checkout"):
        apply(root)
    assert b">>> live-eval" not in (tmp_path / "elsewhere.py").read_bytes()


def test_all_that_is_missing_is_named_at_once(root: Path) -> None:
    (root / "train_async.py").unlink()
    edit(root, PLACEMENT, "rollout_manager, actor_cls=None)", "rollout_manager)")
    edit(root, ACTOR_GROUP, "def async_train", "def train")
    edit(root, ARGUMENTS, "    return args\n", "    return args, None\n")
    found = [str(problem) for problem in examine(Checkout.open(root)).problems]
    assert found == [
        f"{ARGUMENTS}:24: `return args` is not in parse_args(): this looks like it and differs",
        "train_async.py: is missing",
        f"{PLACEMENT}:20: create_training_models() takes no `actor_cls`",
        f"{ACTOR_GROUP}: has no RayTrainGroup.async_train()",
    ]
    with pytest.raises(PatchRefused) as caught:
        apply(root)
    assert sorted(map(str, caught.value.problems)) == sorted(found)


def test_what_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a directory"):
        Checkout.open(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is not a checkout of slime"):
        Checkout.open(tmp_path)


def test_a_checkout_says_its_commit_and_tag(root: Path) -> None:
    assert Checkout.open(root).describe() == "not a git checkout"
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "x"], ["tag", "v9.9.9"]):
        subprocess.run(["git", "-C", str(root), *command], check=True, timeout=20)
    words = Checkout.open(root).describe()
    assert words.startswith("commit ")
    assert words.endswith(", v9.9.9")
