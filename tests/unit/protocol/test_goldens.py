"""Messages of protocol version 1 as frozen bytes: they must decode for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import msgspec
import pytest

from protocol.codec import TAGS, decode, encode
from protocol.errors import UnknownMessage, UnsupportedVersion

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "v1"
ALL_TAGS = pytest.mark.parametrize("tag", sorted(TAGS))


def wire(tag: str) -> bytes:
    return (GOLDEN / f"{tag}.bin").read_bytes()


def envelope(tag: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{tag}.json").read_text(encoding="utf-8"))


def packed(fields: dict[str, Any]) -> bytes:
    data = msgpack.packb(fields)
    assert data is not None
    return data


def test_every_message_type_has_a_golden_pair_and_none_is_left_over() -> None:
    for suffix in (".bin", ".json"):
        assert {path.stem for path in GOLDEN.glob(f"*{suffix}")} == set(TAGS)


@ALL_TAGS
def test_the_bytes_are_the_readable_form(tag: str) -> None:
    assert msgpack.unpackb(wire(tag)) == envelope(tag)
    assert envelope(tag)["t"] == tag
    assert envelope(tag)["v"] == 1


@ALL_TAGS
def test_the_bytes_decode_to_the_readable_values(tag: str) -> None:
    message = decode(wire(tag))
    assert type(message) is TAGS[tag]
    assert message == msgspec.convert(envelope(tag), TAGS[tag])


@ALL_TAGS
def test_the_message_encodes_to_the_frozen_fields_in_their_order(tag: str) -> None:
    frozen = envelope(tag)
    encoded = encode(decode(wire(tag)))
    fields = msgpack.unpackb(encoded)
    assert [(name, fields[name]) for name in fields if name in frozen] == list(frozen.items())
    if fields.keys() == frozen.keys():  # a field that came later has no place in the old bytes
        assert encoded == wire(tag)


@ALL_TAGS
def test_an_unknown_field_is_ignored(tag: str) -> None:
    later = {**envelope(tag), "a_later_field": {"deep": [1, "x", None]}}
    assert decode(packed(later)) == decode(wire(tag))


@ALL_TAGS
def test_a_field_with_a_default_may_be_missing(tag: str) -> None:
    fields = envelope(tag)
    required = {field.encode_name for field in msgspec.structs.fields(TAGS[tag]) if field.required}
    short = {name: value for name, value in fields.items() if name in required or name in ("v", "t")}
    message = decode(packed(short))
    assert type(message) is TAGS[tag]


@ALL_TAGS
def test_another_version_or_type_is_refused(tag: str) -> None:
    with pytest.raises(UnsupportedVersion):
        decode(packed({**envelope(tag), "v": 2}))
    with pytest.raises(UnknownMessage):
        decode(packed({**envelope(tag), "t": f"{tag}_x"}))
