"""Envelope, typed conversion and typed refusals of protocol.codec."""

from __future__ import annotations

import math
from typing import Any

import msgpack
import msgspec
import pytest

from protocol.codec import TAGS, decode, encode, tag_of
from protocol.errors import LimitExceeded, MalformedMessage, ProtocolError, UnknownMessage, UnsupportedVersion
from protocol.messages import (
    MESSAGES,
    BucketHeader,
    JobEvent,
    JobResult,
    MemoryProbe,
    MemoryRange,
    MemoryReach,
    Message,
    Ok,
    ReceiveBucket,
    SyncBegin,
    SyncCommit,
    TensorMeta,
)


def packed(**fields: Any) -> bytes:
    data = msgpack.packb(fields)
    assert data is not None
    return data


def header(*tensors: TensorMeta) -> BucketHeader:
    return BucketHeader(sync_id="s-1", source="pp_0", index=0, weight_version=3, tensors=tensors)


def commit(**changes: Any) -> dict[str, Any]:
    return {"v": 1, "t": "sync_commit", "sync_id": "s-1", "weight_version": 3, **changes}


def test_the_envelope_is_one_flat_map_with_version_and_tag() -> None:
    data = encode(SyncCommit(sync_id="s-1", weight_version=3))
    assert msgpack.unpackb(data) == {"v": 1, "t": "sync_commit", "sync_id": "s-1", "weight_version": 3}
    assert list(msgpack.unpackb(data))[:2] == ["v", "t"]


def test_tags_are_snake_case_unique_and_cover_every_message() -> None:
    assert tag_of(SyncBegin) == "sync_begin"
    assert tag_of(Ok) == "ok"
    assert set(TAGS.values()) == set(MESSAGES)
    assert len(TAGS) == len(MESSAGES)


def test_no_message_has_a_field_that_the_envelope_uses() -> None:
    for message_type in MESSAGES:
        assert not {"v", "t"} & {field.encode_name for field in msgspec.structs.fields(message_type)}


def test_a_message_survives_the_wire_unchanged() -> None:
    message = ReceiveBucket(
        header=header(TensorMeta("w", "bfloat16", (2, 3)), TensorMeta("scalar", "float32", ())),
        group_name="g",
    )
    assert decode(encode(message)) == message


def test_an_unknown_field_is_ignored_at_every_level() -> None:
    tensor = ["w", "bfloat16", [2, 3], "a later addition"]
    inner = {
        "sync_id": "s",
        "source": "p",
        "index": 0,
        "weight_version": 1,
        "tensors": [tensor],
        "later": [1],
    }
    data = packed(v=1, t="receive_bucket", header=inner, group_name="g", later={"a": 1})
    message = decode(data)
    assert isinstance(message, ReceiveBucket)
    assert message.header.tensors == (TensorMeta("w", "bfloat16", (2, 3)),)


def test_another_protocol_version_is_refused_by_its_own_error() -> None:
    for version in (0, 2, -1, 2**62):
        with pytest.raises(UnsupportedVersion, match="this side speaks 1"):
            decode(packed(**commit(v=version)))


def test_an_unknown_type_is_refused_by_its_own_error() -> None:
    with pytest.raises(UnknownMessage, match="sync_resume"):
        decode(packed(**commit(t="sync_resume")))


def test_the_version_is_judged_before_the_type() -> None:
    with pytest.raises(UnsupportedVersion):
        decode(packed(v=2, t="sync_resume"))


@pytest.mark.parametrize(
    "envelope",
    [
        {"t": "ok"},
        {"v": "1", "t": "ok"},
        {"v": True, "t": "ok"},
        {"v": 1.0, "t": "ok"},
        {"v": None, "t": "ok"},
        {"v": 1},
        {"v": 1, "t": 3},
        {"v": 1, "t": None},
        {"v": 1, "t": ["ok"]},
    ],
)
def test_an_envelope_without_version_or_type_is_malformed(envelope: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage):
        decode(packed(**envelope))


@pytest.mark.parametrize("value", [None, 1, "text", [], [1, 2]])
def test_what_is_no_map_is_malformed(value: Any) -> None:
    data = msgpack.packb(value)
    assert data is not None
    with pytest.raises(MalformedMessage):
        decode(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"weight_version": True},
        {"weight_version": 3.0},
        {"weight_version": "3"},
        {"weight_version": None},
        {"sync_id": 7},
        {"sync_id": None},
        {"sync_id": ["s"]},
    ],
)
def test_a_field_of_another_type_is_malformed_and_named(changes: dict[str, Any]) -> None:
    (field,) = changes
    with pytest.raises(MalformedMessage, match=field):
        decode(packed(**commit(**changes)))


def test_a_missing_field_is_malformed_and_named() -> None:
    with pytest.raises(MalformedMessage, match="weight_version"):
        decode(packed(v=1, t="sync_commit", sync_id="s"))


def test_an_integer_is_taken_where_a_float_is_due() -> None:
    message = decode(packed(v=1, t="job_event", job_id="v1/a", dataset="a", status="running", score=1))
    assert isinstance(message, JobEvent)
    assert message.score == 1.0
    assert isinstance(message.score, float)


def test_a_repeated_key_is_malformed() -> None:
    once = packed(**commit())
    twice = bytes([once[0] + 1]) + once[1:] + b"\xa7sync_id\xa3s-2"
    with pytest.raises(MalformedMessage, match="twice"):
        decode(twice)


def test_a_repeated_key_inside_a_field_is_malformed() -> None:
    digests = b"\x82" + 2 * (b"\xa1w" + b"\xa2ab")
    data = b"\x86\xa1v\x01\xa1t\xabsource_done\xa7sync_id\xa1s\xa6source\xa1p\xabnum_buckets\x01\xa7digests"
    with pytest.raises(MalformedMessage, match="twice"):
        decode(data + digests)


def test_text_that_is_not_utf8_is_malformed() -> None:
    data = packed(**commit()).replace(b"s-1", b"s\xff1")
    with pytest.raises(MalformedMessage):
        decode(data)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_float_that_is_not_finite_is_refused_both_ways(value: float) -> None:
    fields = {"v": 1, "t": "job_event", "job_id": "j", "dataset": "d", "status": "running"}
    with pytest.raises(MalformedMessage, match="not finite"):
        decode(packed(**fields, score=value))
    with pytest.raises(MalformedMessage, match="not finite"):
        encode(JobEvent(job_id="j", dataset="d", status="running", score=value))
    with pytest.raises(MalformedMessage, match="not finite"):
        encode(JobResult(result_id="r", job_id="j", dataset="d", status="x", metrics={"m": value}))


TENSORS_REFUSED = {
    "an empty name": TensorMeta("", "float32", (1,)),
    "a name of 1025 bytes": TensorMeta("é" * 512 + "x", "float32", (1,)),
    "an unknown dtype": TensorMeta("w", "float7", (1,)),
    "torch's prefix": TensorMeta("w", "torch.float32", (1,)),
    "a negative dimension": TensorMeta("w", "float32", (2, -1)),
    "two negative dimensions": TensorMeta("w", "float32", (-2, -1)),
    "2**53 elements": TensorMeta("w", "float32", (2**26, 2**27)),
    "a huge dimension beside an empty one": TensorMeta("w", "float32", (0, 2**53)),
    "65 dimensions": TensorMeta("w", "float32", (1,) * 65),
}


@pytest.mark.parametrize("tensor", TENSORS_REFUSED.values(), ids=TENSORS_REFUSED.keys())
def test_an_impossible_tensor_is_refused_both_ways(tensor: TensorMeta) -> None:
    message = header(TensorMeta("fine", "float32", (1,)), tensor)
    with pytest.raises(MalformedMessage, match="bucket_header"):
        encode(message)
    with pytest.raises(MalformedMessage, match="receive_bucket"):
        encode(ReceiveBucket(header=message, group_name="g"))
    fields = {"v": 1, "t": "bucket_header", **msgspec.to_builtins(message)}
    with pytest.raises(MalformedMessage, match="bucket_header"):
        decode(packed(**fields))


def test_tensors_at_the_edge_are_taken() -> None:
    message = header(
        TensorMeta("é" * 512, "float32", (1,)),
        TensorMeta("scalar", "bool", ()),
        TensorMeta("empty", "float8_e4m3fn", (0, 7)),
        TensorMeta("large", "int64", (2**53 - 1,)),
        TensorMeta("deep", "int8", (1,) * 64),
    )
    assert decode(encode(message)) == message


UNENCODABLE: dict[str, Message] = {
    "a lone surrogate": SyncCommit(sync_id="\ud800", weight_version=1),
    "an integer beyond 64 bits": SyncCommit(sync_id="s", weight_version=2**70),
    "a wrong type": SyncCommit(sync_id="s", weight_version="3"),  # pyright: ignore[reportArgumentType]
    "a foreign object": SyncCommit(sync_id="s", weight_version=object()),  # pyright: ignore[reportArgumentType]
    "a number for a word": JobEvent(job_id="j", dataset="d", status=3),  # pyright: ignore[reportArgumentType]
    "no process": MemoryReach(pid=0, reads=False),
    "every process": MemoryReach(pid=-1, reads=False),
    "a process beyond 31 bits": MemoryRange(pid=2**32 + 1, address=1, num_bytes=1),
    "no address": MemoryProbe(pid=1, address=1, mark="m", payload=0),
    "no mark": MemoryProbe(pid=1, address=1, mark="", payload=1),
    "a mark beyond ASCII": MemoryProbe(pid=1, address=1, mark="ü", payload=1),
    "less than no bytes": MemoryRange(pid=1, address=1, num_bytes=-1),
}


@pytest.mark.parametrize("message", UNENCODABLE.values(), ids=UNENCODABLE.keys())
def test_a_message_that_the_peer_would_refuse_is_not_encoded(message: Message) -> None:
    with pytest.raises(MalformedMessage):
        encode(message)


def test_an_integer_above_int64_is_refused_both_ways() -> None:
    with pytest.raises(LimitExceeded, match="2\\*\\*63"):
        encode(SyncCommit(sync_id="s", weight_version=2**63))
    with pytest.raises(LimitExceeded, match="2\\*\\*63"):
        decode(packed(**commit(weight_version=2**63)))
    assert decode(packed(**commit(weight_version=2**63 - 1))) == SyncCommit(
        sync_id="s-1", weight_version=2**63 - 1
    )


def test_a_foreign_message_class_is_not_encoded() -> None:
    class Stranger(Message, frozen=True, kw_only=True):
        x: int = 0

    class Ok(Message, frozen=True, kw_only=True):
        """Not the protocol's Ok, though of the same name."""

    for message in (Stranger(), Ok(), Message()):
        with pytest.raises(UnknownMessage):
            encode(message)


def test_every_wire_error_has_a_code_of_its_own() -> None:
    errors = [ProtocolError, MalformedMessage, LimitExceeded, UnknownMessage, UnsupportedVersion]
    assert len({error.code for error in errors}) == len(errors)
