"""Staging owns its copy, keeps every dtype bit for bit, and is handed out to one sync at a time."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from live_eval.publisher.base import bucketize, tensor_meta
from live_eval.publisher.staging import SMALL_BYTES, StagingPool, StagingSlot, staging_bytes
from protocol.messages import TensorMeta
from protocol.payload import ALIGNMENT, payload_layout


def test_a_layout_aligns_every_tensor_and_has_no_tail() -> None:
    tensors = [
        TensorMeta("a", "uint8", (3,)),
        TensorMeta("b", "float64", (2,)),
        TensorMeta("empty", "float32", (0, 5)),
        TensorMeta("scalar", "bfloat16", ()),
    ]
    assert payload_layout(tensors) == ((0, 64, 128, 128), 130)
    assert payload_layout([]) == ((), 0)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e8m0fnu,
        torch.int64,
        torch.int8,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.bool,
        torch.float64,
    ],
)
def test_staging_keeps_the_bits_of_every_dtype(dtype: torch.dtype) -> None:
    raw = torch.randint(0, 2, (48,), dtype=torch.uint8)
    tensor = raw.view(dtype).clone()
    bucket = StagingSlot(4096).stage([("odd", torch.ones(3, dtype=torch.uint8)), ("t", tensor)])
    assert bucket is not None
    assert bucket.tensors[1] == TensorMeta("t", str(dtype).removeprefix("torch."), tuple(tensor.shape))
    assert bucket.views()[1].tobytes() == raw.numpy().tobytes()


def test_scalars_empty_and_strided_tensors_are_staged() -> None:
    matrix = torch.arange(12.0).reshape(3, 4)
    tensors = [
        ("scalar", torch.tensor(2.5)),
        ("empty", torch.empty(0, 7)),
        ("transposed", matrix.t()),
        ("column", matrix[:, 1]),
    ]
    bucket = StagingSlot(4096).stage(tensors)
    assert bucket is not None
    for (_, tensor), view in zip(tensors, bucket.views(), strict=True):
        assert view.tobytes() == tensor.contiguous().numpy().tobytes()


def test_small_and_large_tensors_of_every_layout_are_staged_bit_for_bit() -> None:
    square = torch.arange(SMALL_BYTES // 2, dtype=torch.float32).reshape(128, -1)
    tensors = [
        ("small", square[:1]),
        ("as large as small ones are", square.view(-1)[: SMALL_BYTES // 4]),
        ("large", square),
        ("small, transposed", square[:2, :64].t()),
        ("large, transposed", square.t()),
        ("expanded", square[:1, :1].expand(3, 5)),
        ("parameter", torch.nn.Parameter(square[3, :7])),
        ("negated when it is read", torch.complex(square[0, :1], square[0, 1:2]).conj().imag),
        ("not aligned", square.view(-1).view(torch.uint8)[3:10]),
    ]
    bucket = StagingSlot(1 << 20).stage(tensors)
    assert bucket is not None
    for (name, tensor), view in zip(tensors, bucket.views(), strict=True):
        assert view.tobytes() == tensor.detach().resolve_neg().contiguous().numpy().tobytes(), name


@pytest.mark.parametrize("length", [8, SMALL_BYTES])
def test_a_tensor_whose_memory_was_released_is_an_error_and_not_the_end_of_the_process(length: int) -> None:
    tensor = torch.ones(length)
    tensor.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="released or offloaded"):
        StagingSlot(1 << 20).stage([("w", tensor)])


def test_tensors_that_share_memory_are_staged_apart() -> None:
    flat = torch.arange(12.0)
    tensors = [
        ("first", flat[:6].view(2, 3)),
        ("second", flat[6:]),
        ("embed", flat),
        ("head", flat),
        ("overlapping", flat[3:9]),
    ]
    bucket = StagingSlot(4096).stage(tensors)
    assert bucket is not None
    for (_, tensor), view in zip(tensors, bucket.views(), strict=True):
        assert view.tobytes() == tensor.contiguous().numpy().tobytes()


def test_the_copy_is_owned_when_staging_returns() -> None:
    tensor = torch.ones(8, requires_grad=True)
    bucket = StagingSlot(4096).stage([("t", tensor)])
    with torch.no_grad():
        tensor.fill_(9.0)
    assert bucket is not None
    assert bucket.views()[0].tobytes() == torch.ones(8).numpy().tobytes()


def test_buckets_lie_behind_each_other_until_the_slot_is_full() -> None:
    metas = [TensorMeta(name, "float32", (5,)) for name in "abc"]
    slot = StagingSlot(staging_bytes(metas))
    buckets = [slot.stage([(meta.name, torch.full((5,), float(i)))]) for i, meta in enumerate(metas)]
    for i, bucket in enumerate(buckets):
        assert bucket is not None
        assert bucket.views()[0].tobytes() == torch.full((5,), float(i)).numpy().tobytes()
    assert slot.stage([("d", torch.ones(ALIGNMENT))]) is None
    slot.clear()
    assert slot.stage([("d", torch.ones(5))]) is not None


def test_a_dtype_that_cannot_cross_the_wire_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        StagingSlot(4096).stage([("c", torch.ones(2, dtype=torch.complex64))])


def test_a_pool_hands_a_slot_to_one_sync_at_a_time() -> None:
    pool = StagingPool(1, 64)
    slot = pool.take(0.0)
    assert slot is not None
    began = time.monotonic()
    assert pool.take(0.05) is None
    assert 0.04 < time.monotonic() - began < 10.0
    threading.Timer(0.05, pool.give_back, [slot]).start()
    assert pool.take(30.0) is slot


def test_a_slot_comes_back_empty() -> None:
    pool = StagingPool(1, 64)
    slot = pool.take(0.0)
    assert slot is not None
    slot.stage([("t", torch.ones(16))])
    pool.give_back(slot)
    again = pool.take(0.0)
    assert again is not None
    assert again.stage([("t", torch.ones(16))]) is not None


def test_bucketize_cuts_in_order_and_gives_a_large_tensor_its_own_bucket() -> None:
    tensors = [
        (name, torch.zeros(size)) for name, size in (("a", 1), ("b", 2), ("big", 100), ("c", 4), ("d", 1))
    ]
    names = [[name for name, _ in bucket] for bucket in bucketize(tensors, 16)]
    assert names == [["a", "b"], ["big"], ["c"], ["d"]]
    assert list(bucketize([], 16)) == []


def test_a_tensors_meta_uses_wire_names() -> None:
    assert tensor_meta("x", torch.empty(2, 3, dtype=torch.bfloat16)) == TensorMeta("x", "bfloat16", (2, 3))
