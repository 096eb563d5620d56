"""Payloads are unpacked where their header says, or refused whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fakes.sync import EMBED, MODEL, NORM, content

from live_eval.digests import tensor_digest
from live_eval.reasons import DiscardReason
from live_eval.store.written_shard import WrittenShard
from live_eval.subscriber.arrival import PIECE_BYTES, Arrived, copy_digest, unpack
from live_eval.subscriber.expected import SyncFault
from live_eval.tensor_files import read_header
from protocol.messages import TensorMeta
from protocol.payload import payload_layout


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 17])
def test_the_digest_of_a_copy_is_that_of_its_bytes(size: int) -> None:
    source = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    target = np.full(size, 255, dtype=np.uint8)
    assert copy_digest(Arrived(source), 0, target) == tensor_digest(source)
    assert target.tobytes() == source.tobytes()


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 17])
def test_a_copy_into_a_file_has_the_same_bytes_and_digest(size: int, tmp_path: Path) -> None:
    source = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    shard = WrittenShard(tmp_path / "shard", [NORM, TensorMeta("it", "uint8", (size,))])
    assert copy_digest(Arrived(source), 0, shard.places["it"]) == tensor_digest(source)
    shard.finish()
    assert read_header(tmp_path / "shard").slots["it"].meta.num_bytes == size
    slot = read_header(tmp_path / "shard").slots["it"]
    assert (tmp_path / "shard").read_bytes()[slot.begin : slot.end] == source.tobytes()


def test_a_payload_is_unpacked_by_its_header() -> None:
    tensors = (NORM, TensorMeta("empty", "float32", (0,)), *MODEL[:3], TensorMeta("scalar", "int8", ()))
    layout = payload_layout(tensors)
    payload = np.full(layout.num_bytes, 255, dtype=np.uint8)
    for start, tensor in zip(layout.offsets, tensors, strict=True):
        payload[start : start + tensor.num_bytes] = content(tensor, 1)
    payload.flags.writeable = False
    targets = [np.full(tensor.num_bytes, 254, dtype=np.uint8) for tensor in tensors]
    digests = unpack(Arrived(payload), tensors, targets)
    assert digests == [tensor_digest(content(tensor, 1)) for tensor in tensors]
    assert [target.tobytes() for target in targets] == [content(tensor, 1).tobytes() for tensor in tensors]


@pytest.mark.parametrize(
    "payload",
    [
        np.zeros(EMBED.num_bytes - 1, dtype=np.uint8),
        np.zeros(EMBED.num_bytes + 1, dtype=np.uint8),
        np.zeros(EMBED.num_bytes // 4, dtype=np.float32),
        np.zeros((2, EMBED.num_bytes // 2), dtype=np.uint8),
    ],
)
def test_a_payload_of_another_size_is_refused_untouched(payload: np.ndarray) -> None:
    target = np.full(EMBED.num_bytes, 7, dtype=np.uint8)
    with pytest.raises(SyncFault) as fault:
        unpack(Arrived(payload), [EMBED], [target])
    assert fault.value.reason is DiscardReason.WRONG_SIZE
    assert (target == 7).all()
