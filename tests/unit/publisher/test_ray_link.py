"""What a link does about Ray: calls without a deadline, dead actors, payloads that need not go through it."""

from __future__ import annotations

import logging
import threading
import time

import numpy as np
import pytest
import ray
import ray.exceptions

from live_eval.process_memory import number_space
from live_eval.publisher import ray_link
from live_eval.publisher.own_memory import InPlace
from live_eval.publisher.ray_link import RayLink
from live_eval.publisher.sender import LinkError
from live_eval.reasons import DiscardReason
from protocol.codec import decode, encode
from protocol.messages import (
    BucketHeader,
    ErrorReply,
    GroupStatusRequest,
    MemoryProbe,
    MemoryRange,
    MemoryReach,
    Message,
    Ok,
    SyncBegin,
    TensorMeta,
)

PAYLOAD = np.zeros(8, dtype=np.uint8)


def test_a_put_that_a_full_object_store_holds_up_ends_for_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    room = threading.Event()

    def put(payload: np.ndarray) -> str:
        room.wait(10.0)
        return "ref"

    monkeypatch.setattr(ray, "put", put)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    link = RayLink(None, put_timeout_s=0.1, in_place=False)
    began = time.monotonic()
    for _ in range(3):  # the second and third are not even begun
        with pytest.raises(LinkError) as caught:
            link.put(PAYLOAD)
        assert caught.value.reason is DiscardReason.PUBLISHER_DEADLINE
    assert time.monotonic() - began < 8.0
    assert sum(thread.name == "live-eval-put" for thread in threading.enumerate()) == 1
    room.set()
    deadline = time.monotonic() + 30.0
    while any(thread.name == "live-eval-put" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert link.put(PAYLOAD) == "ref"


def test_a_put_that_the_object_store_refuses_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(payload: np.ndarray) -> str:
        raise ray.exceptions.RaySystemError("full")

    monkeypatch.setattr(ray, "put", put)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    with pytest.raises(LinkError, match="full") as caught:
        RayLink(None, in_place=False).put(PAYLOAD)
    assert caught.value.reason is DiscardReason.PUBLISHER_ABORTED


class Actor:
    """An actor's handle; dead for good, away for a while, or answering."""

    def __init__(self, error: Exception | None = None) -> None:
        self.request = self
        self.error = error
        self.num_calls = 0

    def remote(self, data: bytes) -> Actor:
        self.num_calls += 1
        return self

    def answer(self, timeout: float) -> bytes:
        if self.error is not None:
            raise self.error
        return encode(Ok())


def ask(link: RayLink) -> object:
    return link.wait(link.start(GroupStatusRequest()), 1.0)


@pytest.mark.parametrize(
    "error", [ray.exceptions.ActorDiedError(), ray.exceptions.ActorUnschedulableError("its node is gone")]
)
def test_a_receiver_that_is_dead_for_good_is_looked_for_by_its_name(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get", lambda pending, timeout: pending.answer(timeout))
    monkeypatch.setattr(ray_link, "FIND_EVERY_S", 0.0)
    dead, found = Actor(error), list[Actor]()

    def find() -> Actor:
        if not found:
            raise ValueError("no actor has this name")
        return found[0]

    link = RayLink(dead, find=find)
    for _ in range(3):
        with pytest.raises(LinkError, match="the receiver is gone") as caught:
            ask(link)
        assert caught.value.reason is DiscardReason.RECEIVER_RESTARTED
    found.append(Actor())
    assert isinstance(ask(link), Ok)
    assert found[0].num_calls == 1


def test_a_receiver_that_ray_restarts_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get", lambda pending, timeout: pending.answer(timeout))
    away = Actor(ray.exceptions.ActorUnavailableError("it is restarting", None))
    link = RayLink(away, find=lambda: pytest.fail("it was looked for"))
    for _ in range(2):
        with pytest.raises(LinkError):
            ask(link)
    away.error = None
    assert isinstance(ask(link), Ok)


class Reader:
    """A receiver on this host, or on none; keeps what it was sent."""

    def __init__(self, answers: list[Message | Exception]) -> None:
        self.request = self.bucket = self
        self.answers = answers
        self.sent: list[Message] = []
        self.payloads: list[list[object]] = []

    def remote(self, data: bytes, payload: list[object] | None = None) -> Message | Exception:
        self.sent.append(decode(data))
        if payload is not None:
            self.payloads.append(payload)
        return self.answers.pop(0) if isinstance(self.sent[-1], MemoryProbe) else Ok()


BUSY = 9
"""A process that cannot be allowed, because another one is."""
FORBIDDEN = MemoryReach(pid=7, reads=False, forbidden_in=number_space())
BEGIN = SyncBegin(
    sync_id="life/1", run_id="run", incarnation_id="life", weight_version=1, sources=("pp_0",), num_bytes=8
)
HEADER = BucketHeader(
    sync_id="life/1", source="pp_0", index=0, weight_version=1, tensors=(TensorMeta("w", "uint8", (8,)),)
)


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A Ray that hands answers on, and the processes that were allowed to read."""
    found: list[int] = []

    def get(pending: Message | Exception, timeout: float) -> bytes:
        if isinstance(pending, Exception):
            raise pending
        return encode(pending)

    def allow(pid: int) -> bool:
        found.append(pid)
        return pid != BUSY

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "put", lambda payload: "ref")
    monkeypatch.setattr(ray_link, "allow_reader", allow)
    return found


def test_a_receiver_that_reads_this_memory_is_told_where_the_payload_lies(allowed: list[int]) -> None:
    reader = Reader([MemoryReach(pid=7, reads=True)])
    link = RayLink(reader)
    link.start(BEGIN)
    for _ in range(2):  # asked once in a sync
        link.start(HEADER, link.put(PAYLOAD))
    assert [type(message) for message in reader.sent] == [SyncBegin, MemoryProbe, BucketHeader, BucketHeader]
    ((place,), _) = reader.payloads
    assert isinstance(place, bytes)
    where = decode(place)
    assert isinstance(where, MemoryRange)
    assert (where.address, where.num_bytes) == (PAYLOAD.ctypes.data, 8)
    assert allowed == []


def test_a_receiver_that_may_not_read_is_allowed_to(allowed: list[int]) -> None:
    link = RayLink(Reader([FORBIDDEN, MemoryReach(pid=7, reads=True)]))
    assert isinstance(link.put(PAYLOAD), InPlace)
    assert allowed == [7]


@pytest.mark.parametrize(
    "answers",
    [
        [FORBIDDEN] * 2,
        [MemoryReach(pid=BUSY, reads=False, forbidden_in=number_space())],
        [ErrorReply(code="unknown_message", message="memory_probe")],
        [ray.exceptions.GetTimeoutError("late")],
        [ray.exceptions.ActorDiedError()],
    ],
)
def test_a_receiver_that_cannot_read_gets_the_payload_through_the_object_store(
    allowed: list[int], answers: list[Message | Exception]
) -> None:
    link = RayLink(Reader(list(answers)))
    assert [link.put(PAYLOAD), link.put(PAYLOAD)] == ["ref", "ref"]


@pytest.mark.parametrize("elsewhere", ["", "another-host/4026531836"])
def test_the_number_of_a_process_elsewhere_gives_no_process_here_a_right(
    allowed: list[int], monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    reader = Reader([MemoryReach(pid=7, reads=False, forbidden_in=elsewhere)] * 2)
    assert RayLink(reader).put(PAYLOAD) == "ref"
    monkeypatch.setattr(ray_link, "number_space", lambda: "")  # this one does not know where it is
    assert RayLink(reader).put(PAYLOAD) == "ref"
    assert allowed == []


def test_another_sync_asks_anew_and_the_log_says_what_has_changed(
    allowed: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reads = MemoryReach(pid=7, reads=True)
    link = RayLink(Reader([reads, reads, MemoryReach(pid=8, reads=False)]))
    for _ in range(2):
        assert isinstance(link.put(PAYLOAD), InPlace)
        link.start(BEGIN)
    assert link.put(PAYLOAD) == "ref"
    assert [record.message for record in caplog.records] == [
        "weights are read in place by the receiver",
        "weights go through Ray's object store",
    ]
