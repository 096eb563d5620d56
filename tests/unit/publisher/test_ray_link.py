"""The one call of Ray that has no deadline of its own."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import ray
import ray.exceptions

from live_eval.publisher.ray_link import RayLink
from live_eval.publisher.sender import LinkError
from live_eval.reasons import DiscardReason

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
