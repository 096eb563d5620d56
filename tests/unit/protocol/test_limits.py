"""Each limit, hit and just not hit, on hand-made bytes; and what a bomb may cost."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import fields

import msgpack
import pytest

from protocol.codec import DEFAULT_LIMITS, Limits, decode, encode
from protocol.errors import LimitExceeded, MalformedMessage, ProtocolError
from protocol.messages import BucketHeader, ErrorReply, JobsAccepted, SourceDone, SyncAbort, TensorMeta
from protocol.scan import scan

HEAD = b"\x83\xa1v\x01\xa1t\xa2ok\xa1x"
"""An Ok with one more field `x`, whose value follows: what is inside is ignored, if it is allowed."""

NIL = b"\xc0"


def array_of(length: int) -> bytes:
    return b"\xdd" + struct.pack(">I", length)


def map_of(length: int) -> bytes:
    return b"\xdf" + struct.pack(">I", length)


def test_the_defaults_are_those_of_the_specification() -> None:
    assert {field.name: getattr(DEFAULT_LIMITS, field.name) for field in fields(Limits)} == {
        "max_bytes": 64 * 1024 * 1024,
        "max_depth": 6,
        "max_str_bytes": 64 * 1024,
        "max_array_items": 1_000_000,
        "max_map_items": 1_000_000,
        "max_items": 2_000_000,
    }


BREACHES = {
    "a depth bomb of arrays": b"\x91" * 1_000_000,
    "a depth bomb of maps": b"\x81\xa1k" * 1_000_000,
    "a depth bomb of large arrays": array_of(1_000_000) * 1_000_000,
    "one level too deep": HEAD + b"\x91" * 6 + NIL,
    "a huge array of nothing": HEAD + array_of(0xFFFFFFFF),
    "a huge map of nothing": HEAD + map_of(0xFFFFFFFF),
    "a huge string of nothing": HEAD + b"\xdb\xff\xff\xff\xff",
    "an array one item too long": HEAD + array_of(1_000_001) + NIL * 1_000_001,
    "a string one byte too long": HEAD + b"\xdb\x00\x01\x00\x01" + b"x" * 65537,
    "a key one byte too long": HEAD + b"\x81\xdb\x00\x01\x00\x01" + b"x" * 65537 + NIL,
    "a number as key": HEAD + b"\x81\x01\x02",
    "nil as key": HEAD + b"\x81\xc0\x02",
    "a float as key": HEAD + b"\x81\xca\x00\x00\x00\x00\x02",
    "an array as key": HEAD + b"\x81\x90\x02",
    "a map as second key": HEAD + b"\x82\xa1k\x02\x80\x02",
    "a number as key of the envelope": b"\x81\x01\x02",
    "bin 8": HEAD + b"\xc4\x01x",
    "an empty bin": HEAD + b"\xc4\x00",
    "bin 16": HEAD + b"\xc5\x00\x01x",
    "a huge bin of nothing": HEAD + b"\xc6\xff\xff\xff\xff",
    "bin as key": HEAD + b"\x81\xc4\x01x\x01",
    "an ext type": HEAD + b"\xd4\x05x",
    "an ext type 8": HEAD + b"\xc7\x00\x05",
    "a timestamp": HEAD + b"\xd6\xff\x00\x00\x00\x00",
    "a huge ext of nothing": HEAD + b"\xc9\xff\xff\xff\xff\x05",
    "an integer above int64": HEAD + b"\xcf\x80\x00\x00\x00\x00\x00\x00\x00",
    "too many bytes": HEAD + b"\xdb\x00\x01\x00\x00" * 1000 + b"x" * (64 << 20),
    "too many values": HEAD + array_of(900_000) * 3 + NIL * 900_000,
}


@pytest.mark.parametrize("data", BREACHES.values(), ids=BREACHES.keys())
def test_a_breach_of_a_limit_is_limit_exceeded_and_costs_little(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded):
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


CUT_SHORT = {
    "nothing": b"",
    "a million items announced": HEAD + array_of(1_000_000),
    "many arrays that announce much": HEAD + array_of(900_000) + array_of(900_000) + array_of(900_000),
    "a map without its last value": HEAD + b"\x81\xa1k",
    "a map of 1000 pairs with 1000 values": HEAD + map_of(1000) + b"\xa0" * 1000,
    "a string without its end": HEAD + b"\xa5four",
    "a long string without its end": HEAD + b"\xda\x40\x00" + b"x" * 100,
    "a length without its end": HEAD + b"\xdd\x00\x00",
    "a number without its end": HEAD + b"\xcb\x00",
    "no value": HEAD,
}


@pytest.mark.parametrize("data", CUT_SHORT.values(), ids=CUT_SHORT.keys())
def test_what_announces_more_than_it_holds_is_malformed_and_costs_little(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage, match="cut short"):
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


@pytest.mark.parametrize("data", [HEAD + NIL + NIL, HEAD + NIL + b"x" * 100, b"\xc1", HEAD + b"\xc1"])
def test_what_follows_the_end_and_what_is_no_messagepack_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(data)


ALLOWED = {
    "the full depth": HEAD + b"\x91" * 5 + NIL,
    "the longest array": HEAD + array_of(1_000_000) + NIL * 1_000_000,
    "the longest string": HEAD + b"\xdb\x00\x01\x00\x00" + b"x" * 65536,
    "every number": HEAD
    + b"\x9e\x00\x7f\xe0\xff\xcc\xff\xcd\xff\xff\xce\xff\xff\xff\xff\xcf\x7f\xff\xff\xff\xff\xff\xff\xff"
    + b"\xd0\x80\xd1\x80\x00\xd2\x80\x00\x00\x00\xd3\x80\x00\x00\x00\x00\x00\x00\x00"
    + b"\xca\x7f\x7f\xff\xff\xcb\x7f\xef\xff\xff\xff\xff\xff\xff",
    "nil, booleans, empty things": HEAD + b"\x96\xc0\xc2\xc3\xa0\x90\x80",
    "keys of all widths": HEAD + b"\x84\xa1a\x01\xd9\x01b\x01\xda\x00\x01c\x01\xdb\x00\x00\x00\x01d\x01",
}


@pytest.mark.parametrize("data", ALLOWED.values(), ids=ALLOWED.keys())
def test_what_is_just_within_the_limits_is_taken(data: bytes) -> None:
    decode(data)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1,
        2**63 - 1,
        -(2**63),
        1.5,
        "",
        "ü" * 40,
        "x" * 300,
        [],
        [[1], {"k": [2]}],
        {"a": {"b": 1}},
    ],
)
def test_the_walk_agrees_with_what_the_packer_writes(value: object) -> None:
    data = msgpack.packb(value)
    assert data is not None
    scan(data)
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            scan(data[:end])
    with pytest.raises(MalformedMessage, match="follow"):
        scan(data + b"\x00")


def test_the_sender_is_held_to_the_limits_as_well() -> None:
    with pytest.raises(LimitExceeded):
        encode(SyncAbort(sync_id="s", reason="x" * 65537))
    with pytest.raises(LimitExceeded):
        encode(JobsAccepted(job_ids=("j",) * 1_000_001))
    with pytest.raises(LimitExceeded):
        encode(ErrorReply(code="c", message="m", detail={"k" * 65537: "v"}))
    with pytest.raises(LimitExceeded):
        encode(SyncAbort(sync_id="s", reason="x" * 1000), limits=Limits(max_bytes=500))


def test_a_large_models_sync_is_far_within_the_limits() -> None:
    names = [f"model.layers.{i // 400}.mlp.experts.{i % 400}.gate_proj.weight" for i in range(40_000)]
    header = BucketHeader(
        sync_id="s",
        source="p",
        index=0,
        weight_version=1,
        tensors=tuple(TensorMeta(name, "bfloat16", (1536, 4096)) for name in names),
    )
    assert decode(encode(header)) == header
    done = SourceDone(sync_id="s", source="p", num_buckets=1, digests=dict.fromkeys(names, "0" * 32))
    assert decode(encode(done)) == done
