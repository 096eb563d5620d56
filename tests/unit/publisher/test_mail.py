"""The sender of transport disk: what it posts is what a reader needs, and nothing waits for the reader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.receiving import Desk
from fakes.sync import MODEL, content, write_base
from fakes.weights import weights

import live_eval.publisher.mail
from live_eval.mailbox import Mailbox
from live_eval.publisher.mail import MailSender
from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher
from live_eval.subscriber.mail_reader import MailReader

if TYPE_CHECKING:
    from live_eval.publisher.base import SyncReport

WAIT_S = 20.0
DEADLINE_S = 1.0


class Office:
    """A publisher of each source, one mailbox, and a reader."""

    def __init__(
        self, root: Path, *, sources: tuple[str, ...] = ("pp_0",), slot_bytes: int = 1 << 12
    ) -> None:
        self.mailbox = Mailbox(root / "mail")
        self.desk = Desk.open(root / "store", write_base(root / "base", tied=True))
        self.reader = MailReader(self.mailbox, self.desk.receiver)
        self.publishers = [
            RayRefPublisher(
                None,
                RayPublisherConfig(
                    run_id="run", slot_bytes=1 << 12, source=source, sources=sources,
                    incarnation_id="life-1", deadline_s=DEADLINE_S, bucket_bytes=64,
                ),
                sender=MailSender(self.mailbox, life="life", source=source, sync_timeout_s=WAIT_S),
            )
            for source in sources
        ]  # fmt: skip

    def sync(self, version: int) -> list[SyncReport]:
        """Publish, and change the weights in place at once."""
        reports = []
        for number, publisher in enumerate(self.publishers):
            tensors = weights(version)[number :: len(self.publishers)]
            publisher.begin(version, rollout_id=version, train_step=version)
            publisher.put_bucket(tensors)
            reports.append(publisher.commit())
            for _, tensor in tensors:
                tensor.fill_(0)
        return reports

    def read(self, count: int = 1) -> None:
        deadline = time.monotonic() + WAIT_S
        while count > 0:
            count -= self.reader.run_once()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def is_whole(self, version: int) -> bool:
        return all((self.desk.content(version, each) == content(each, version)).all() for each in MODEL)

    def close(self) -> None:
        for publisher in self.publishers:
            publisher.close(WAIT_S)
        self.desk.close()


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path)
    yield made
    made.close()


def test_a_version_is_what_was_staged_and_not_what_came_later(office: Office) -> None:
    for version in (1, 2):
        assert office.sync(version)[0].published
        office.read()
        assert office.is_whole(version)


def test_two_sources_make_one_version(tmp_path: Path) -> None:
    office = Office(tmp_path, sources=("pp_0", "pp_1"))
    office.sync(1)
    office.read()
    assert office.is_whole(1)
    office.close()


def test_a_reader_that_is_gone_costs_versions_and_holds_the_trainer_for_the_deadline_once(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_eval.publisher.mail, "MAX_WAITING", 1)
    office.sync(1)
    while not office.mailbox.entries():
        time.sleep(0.01)
    began = time.monotonic()
    published = [office.sync(version)[0].published for version in (2, 3, 4)]
    assert time.monotonic() - began < 1.9 * DEADLINE_S
    assert published == [True, False, False]  # the second one waits in its slot
    office.read(2)
    assert office.is_whole(1) and office.is_whole(2)
    for publisher in office.publishers:
        publisher.close(WAIT_S)
    office.reader.run_once()
    assert office.desk.reasons() == [(3, "publisher_deadline"), (4, "publisher_deadline")]


def test_a_disk_that_is_full_costs_the_version(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(live_eval.publisher.mail, "write_bucket", full)
        office.sync(1)
        office.read()
    assert office.desk.reasons() == [(1, "publisher_aborted")]
    office.sync(2)
    office.read()
    assert office.is_whole(2)
