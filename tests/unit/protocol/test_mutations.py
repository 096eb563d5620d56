"""Damaged messages: whatever happens to the bytes, the codec answers with a message or a ProtocolError."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import msgpack
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.codec import TAGS, decode, encode
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from protocol.messages import Message

GOLDENS = [path.read_bytes() for path in sorted((Path(__file__).parents[2] / "golden" / "v1").glob("*.bin"))]

HEADS = st.sampled_from(
    [
        b"\x80",
        b"\x90",
        b"\xa0",
        b"\xc0",
        b"\xc1",
        b"\xc4\x01",
        b"\xc7\x00\x01",
        b"\xca",
        b"\xcb\x7f\xf0",
        b"\xcf",
        b"\xd4",
        b"\xdb\x7f\xff\xff\xff",
        b"\xdd\x00\x0f\x42\x40",
        b"\xdf\x00\x0f\x42\x40",
        b"\xdd\xff\xff\xff\xff",
    ]
)
"""Bytes that mean much to MessagePack."""


def taken_or_refused(data: bytes) -> Message | None:
    """The message, or None where the codec refused; any other error fails the test."""
    try:
        return decode(data)
    except ProtocolError:
        return None


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A golden message after one to four cuts, insertions, replacements and splices."""
    data = bytearray(draw(st.sampled_from(GOLDENS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["replace", "insert", "delete", "cut", "splice", "repeat"])):
            case "replace":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "insert":
                data[at:at] = draw(HEADS | st.binary(min_size=1, max_size=4))
            case "delete":
                del data[at : at + draw(st.integers(1, 8))]
            case "cut":
                del data[at:]
            case "splice":
                data[at:] = draw(st.sampled_from(GOLDENS))[at:]
            case _:
                data[at:at] = data[at : at + 200] * draw(st.integers(1, 50))
    return bytes(data)


@settings(max_examples=800, deadline=None)
@given(damaged())
def test_damage_gives_a_message_or_a_protocol_error(data: bytes) -> None:
    message = taken_or_refused(data)
    if message is not None:
        assert decode(encode(message)) == message


@settings(max_examples=300, deadline=None)
@given(damaged())
def test_damage_costs_memory_in_proportion_to_the_bytes(data: bytes) -> None:
    tracemalloc.start()
    try:
        taken_or_refused(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000 + 150 * len(data)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_noise_gives_a_message_or_a_protocol_error(data: bytes) -> None:
    taken_or_refused(data)
    taken_or_refused(b"\x82\xa1v\x01\xa1t" + data)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.integers(0, 9), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(TAGS)), st.data())
def test_any_value_in_any_field_gives_a_message_or_a_protocol_error(tag: str, data: st.DataObject) -> None:
    fields = {"v": 1, "t": tag}
    for name in TAGS[tag].__struct_fields__:
        fields[name] = data.draw(VALUES | st.text(max_size=10) | st.integers(0, 9))
    encoded = msgpack.packb(fields)
    assert encoded is not None
    message = taken_or_refused(encoded)
    if message is not None:
        assert decode(encode(message)) == message
