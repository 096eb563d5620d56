"""Versions that come as files: each has one outcome, whoever dies between posting and reading."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.mail import post
from fakes.receiving import Desk
from fakes.sync import DOWN, EMBED, MODEL, NORM, UP, begin, content

from live_eval.mailbox import Mailbox
from live_eval.subscriber.mail_reader import MailReader
from protocol.messages import SyncGivenUp, TensorMeta

if TYPE_CHECKING:
    import numpy as np

    from live_eval.store import BaseCheckpoint


class Office:
    """A mailbox, a reader, and the receiver behind it."""

    def __init__(self, root: Path, base: BaseCheckpoint) -> None:
        self._root, self._base = root, base
        self.mailbox = Mailbox(root / "mail")
        self.mailbox.make("token")
        self.open()

    def open(self) -> None:
        self.desk = Desk.open(self._root / "store", self._base)
        self.reader = MailReader(
            self.mailbox, self.desk.receiver, patience_s=10.0, clock=lambda: self.desk.now
        )

    def content(self, version: int) -> list[np.ndarray]:
        return [self.desk.content(version, tensor) for tensor in MODEL]


@pytest.fixture
def office(tmp_path: Path, base: BaseCheckpoint) -> Iterator[Office]:
    made = Office(tmp_path, base)
    yield made
    made.desk.close()


def same(found: list[np.ndarray], version: int) -> bool:
    return all((a == content(tensor, version)).all() for a, tensor in zip(found, MODEL, strict=True))


def test_a_posted_version_is_sealed_with_its_bytes_and_its_entry_is_gone(office: Office) -> None:
    post(office.mailbox, begin(1), (EMBED, UP), (DOWN, NORM))
    assert office.reader.run_once() == 1
    assert same(office.content(1), 1)
    assert office.mailbox.entries() == []
    assert office.mailbox.holds("token")


def test_an_entry_that_is_being_written_is_not_read(office: Office) -> None:
    office.mailbox.draft("life", 1, "pp_0")
    assert office.reader.run_once() == 0


def test_two_sources_are_waited_for_and_make_one_version(office: Office) -> None:
    of = begin(1, sources=("pp_0", "pp_1"))
    post(office.mailbox, of, (EMBED, UP), source="pp_0")
    assert office.reader.run_once() == 0
    post(office.mailbox, of, (DOWN, NORM), source="pp_1")
    assert office.reader.run_once() == 1
    assert same(office.content(1), 1)


def test_a_source_that_posts_nothing_is_waited_for_in_bounds(office: Office) -> None:
    post(office.mailbox, begin(1, sources=("pp_0", "pp_1")), (EMBED, UP), source="pp_0")
    assert office.reader.run_once() == 0
    office.desk.now += 11
    assert office.reader.run_once() == 1
    assert office.desk.reasons() == [(1, "source_deadline")]


def test_a_later_version_shows_that_waiting_for_a_source_is_in_vain(office: Office) -> None:
    post(office.mailbox, begin(1, sources=("pp_0", "pp_1")), (EMBED, UP), source="pp_0")
    later = begin(2, sources=("pp_0", "pp_1"))
    post(office.mailbox, later, (EMBED, UP), source="pp_0")
    post(office.mailbox, later, (DOWN, NORM), source="pp_1")
    assert office.reader.run_once() == 2
    assert office.desk.reasons() == [(1, "source_deadline")]
    assert same(office.content(2), 2)


def test_a_source_that_is_ahead_does_not_make_the_other_one_late(office: Office) -> None:
    sources = ("pp_0", "pp_1")
    for version in (2, 1):  # whatever the files' times say
        post(office.mailbox, begin(version, sources=sources), (EMBED, UP), source="pp_0")
    assert office.reader.run_once() == 0
    for version in (1, 2):
        post(office.mailbox, begin(version, sources=sources), (DOWN, NORM), source="pp_1")
    assert office.reader.run_once() == 2
    assert same(office.content(1), 1) and same(office.content(2), 2)


def test_a_life_that_is_over_is_not_waited_for(office: Office) -> None:
    post(office.mailbox, begin(1, sources=("pp_0", "pp_1")), MODEL, source="pp_0", life="a")
    os.utime(office.mailbox.directory / "a-00000001-pp_0", (1.0, 1.0))
    post(office.mailbox, begin(1, incarnation="life-2"), MODEL, life="b")
    assert office.reader.run_once() == 2
    assert office.desk.reasons() == [(1, "source_deadline")]
    assert [record.incarnation for record in office.desk.store.sealed()] == [2]


def test_a_version_that_was_given_up_is_recorded(office: Office) -> None:
    of = begin(1)
    note = SyncGivenUp(
        sync_id=of.sync_id, run_id="run", incarnation_id=of.incarnation_id, weight_version=1,
        reason="publisher_deadline",
    )  # fmt: skip
    office.mailbox.draft("life", 1, "pp_0").post(note)
    office.reader.run_once()
    assert office.desk.reasons() == [(1, "publisher_deadline")]


def test_a_version_that_an_earlier_life_had_begun_is_not_begun_again(office: Office) -> None:
    of = begin(1)
    post(office.mailbox, of, MODEL)
    office.desk.receiver.begin(of)
    office.desk.close()
    office.open()
    office.reader.run_once()
    assert office.desk.reasons() == [(1, "receiver_restarted")]
    post(office.mailbox, begin(2), MODEL)
    office.reader.run_once()
    assert same(office.content(2), 2)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ((EMBED, UP, DOWN), "incomplete"),
        ((EMBED, UP, DOWN, NORM, TensorMeta("other", "float32", (1,))), "unknown_tensor"),
    ],
)
def test_a_bad_version_is_discarded_and_the_next_one_is_whole(
    office: Office, tensors: tuple[TensorMeta, ...], reason: str
) -> None:
    post(office.mailbox, begin(1), tensors)
    post(office.mailbox, begin(2), MODEL)
    assert office.reader.run_once() == 2
    assert office.desk.reasons() == [(1, reason)]
    assert same(office.content(2), 2)


def test_a_torn_file_is_discarded(office: Office) -> None:
    draft_file = post(office.mailbox, begin(1), MODEL) / "00000.safetensors"
    os.truncate(draft_file, draft_file.stat().st_size - 1)
    office.reader.run_once()
    assert office.desk.reasons() == [(1, "payload_lost")]


def test_damaged_bytes_are_seen_by_their_digest(office: Office) -> None:
    path = post(office.mailbox, begin(1), MODEL) / "00000.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    office.reader.run_once()
    assert office.desk.reasons() == [(1, "digest_mismatch")]
