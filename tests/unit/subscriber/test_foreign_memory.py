"""A payload is read where it lies: the right process, the right bytes, or a fault."""

from __future__ import annotations

import errno
import os
import random

import msgspec
import numpy as np
import pytest
from fakes.sync import MODEL, content

from live_eval.digests import tensor_digest
from live_eval.process_memory import number_space
from live_eval.publisher.own_memory import InPlace, Mark
from live_eval.reasons import DiscardReason
from live_eval.subscriber import foreign_memory
from live_eval.subscriber.arrival import PIECE_BYTES, unpack
from live_eval.subscriber.expected import SyncFault
from live_eval.subscriber.foreign_memory import ForeignPayload, reach
from protocol.messages import TensorMeta
from protocol.payload import payload_layout

BYTES = np.random.default_rng(3).integers(0, 256, 3 * PIECE_BYTES + 17, dtype=np.uint8)


def test_a_reader_finds_the_mark() -> None:
    mark = Mark()
    answer = reach(mark.probe(BYTES))
    assert (answer.pid, answer.reads) == (os.getpid(), True)


@pytest.mark.parametrize(
    "change",
    [
        {"mark": "0" * 32},  # another process has this number here
        {"mark": "g"},  # no character of a mark
        {"pid": 2**22 + 1},  # above what Linux gives
        {"address": 1},
        {"payload": 1},
    ],
)
def test_a_reader_that_does_not_find_it_says_so(change: dict[str, object]) -> None:
    mark = Mark()
    answer = reach(msgspec.structs.replace(mark.probe(BYTES), **change))
    assert (answer.reads, answer.forbidden_in) == (False, "")


def test_a_reader_that_the_system_forbids_it_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(pid: int, address: int, into: np.ndarray) -> None:
        raise OSError(errno.EPERM, "not allowed")

    monkeypatch.setattr(foreign_memory, "read_memory", forbid)
    answer = reach(Mark().probe(BYTES))
    assert (answer.pid, answer.reads, answer.forbidden_in) == (os.getpid(), False, number_space())


def test_pieces_are_those_bytes_in_whatever_order() -> None:
    source = ForeignPayload(InPlace(BYTES).range)
    assert source.nbytes == len(BYTES)
    order = random.Random(5)
    for _ in range(300):
        start = order.randrange(len(BYTES) + 1)
        end = min(start + order.choice((0, 1, 64, 5000, PIECE_BYTES)), len(BYTES))
        assert source.piece(start, end).tobytes() == BYTES[start:end].tobytes()


def test_a_payload_is_unpacked_from_where_it_lies() -> None:
    tensors = (TensorMeta("long", "uint8", (2 * PIECE_BYTES + 3,)), *MODEL, TensorMeta("none", "int8", (0,)))
    layout = payload_layout(tensors)
    payload = np.full(layout.num_bytes, 255, dtype=np.uint8)
    for start, tensor in zip(layout.offsets, tensors, strict=True):
        payload[start : start + tensor.num_bytes] = content(tensor, 1)
    targets = [np.full(tensor.num_bytes, 254, dtype=np.uint8) for tensor in tensors]
    digests = unpack(ForeignPayload(InPlace(payload).range), tensors, targets)
    assert digests == [tensor_digest(content(tensor, 1)) for tensor in tensors]
    assert [target.tobytes() for target in targets] == [content(tensor, 1).tobytes() for tensor in tensors]


def test_memory_that_is_gone_is_a_lost_payload() -> None:
    source = ForeignPayload(msgspec.structs.replace(InPlace(BYTES).range, address=1))
    for _ in range(2):
        with pytest.raises(SyncFault, match="cannot be read") as caught:
            source.piece(0, 8)
        assert caught.value.reason is DiscardReason.PAYLOAD_LOST
