"""A mailbox touches what is its own, whatever directory it was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from live_eval.mailbox import UNFINISHED, Mailbox
from protocol.messages import SyncBegin


def posted(mailbox: Mailbox, version: int = 1) -> Path:
    draft = mailbox.draft("life", version, "pp_0")
    draft.post(
        SyncBegin(
            sync_id=f"life/{version}",
            run_id="run",
            incarnation_id="life",
            weight_version=version,
            sources=("pp_0",),
        )
    )
    return draft.path.with_name(draft.path.name.removesuffix(UNFINISHED))


def test_a_directory_that_holds_something_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(OSError, match="holds files and is no mailbox"):
        Mailbox(tmp_path).make("token")
    assert (tmp_path / "checkpoints" / "model.safetensors").read_bytes() == b"weights"


def test_an_earlier_mailbox_is_emptied_of_entries_alone(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path / "mail")
    mailbox.make("first")
    whole, unfinished = posted(mailbox), mailbox.draft("life", 2, "pp_0").path
    (mailbox.directory / "notes").mkdir()
    mailbox.make("second")
    assert mailbox.holds("second")
    assert not whole.exists()
    assert not unfinished.exists()
    assert (mailbox.directory / "notes").is_dir()


def test_a_directory_of_somebody_else_is_neither_an_entry_nor_removed(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path / "mail")
    mailbox.make("token")
    posted(mailbox)
    (mailbox.directory / "notes").mkdir()
    assert [entry.message.weight_version for entry in mailbox.entries()] == [1]
    assert (mailbox.directory / "notes").is_dir()


def test_an_entry_that_cannot_be_read_is_removed(tmp_path: Path) -> None:
    mailbox = Mailbox(tmp_path / "mail")
    mailbox.make("token")
    broken = posted(mailbox)
    (broken / "begin.msgpack").write_bytes(b"\xc1")
    assert mailbox.entries() == []
    assert not broken.exists()
