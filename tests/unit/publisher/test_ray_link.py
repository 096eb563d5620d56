"""The one call of Ray that has no deadline of its own."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import ray
import ray.exceptions

from live_eval.publisher import ray_link
from live_eval.publisher.ray_link import RayLink
from live_eval.publisher.sender import LinkError
from live_eval.reasons import DiscardReason
from protocol.codec import encode
from protocol.messages import GroupStatusRequest, Ok

PAYLOAD = np.zeros(8, dtype=np.uint8)


def test_a_put_that_a_full_object_store_holds_up_ends_for_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    room = threading.Event()

    def put(payload: np.ndarray) -> str:
        room.wait(10.0)
        return "ref"

    monkeypatch.setattr(ray, "put", put)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    link = RayLink(None, put_timeout_s=0.1)
    began = time.monotonic()
    for _ in range(3):  # the second and third are not even begun
        with pytest.raises(LinkError) as caught:
            link.put(PAYLOAD)
        assert caught.value.reason is DiscardReason.PUBLISHER_DEADLINE
    assert time.monotonic() - began < 2.0
    assert sum(thread.name == "live-eval-put" for thread in threading.enumerate()) == 1
    room.set()
    deadline = time.monotonic() + 5.0
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
        RayLink(None).put(PAYLOAD)
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
