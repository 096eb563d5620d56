"""docs/protocol.md says what the code does: every message, field, type, default, word and digest."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect
import pytest
import xxhash

import live_eval.errors
import protocol.errors
from live_eval.digests import tensor_digest, version_digest
from live_eval.reasons import DiscardReason, EndReason, JobStatus
from protocol.codec import DEFAULT_LIMITS, TAGS, Limits, encode
from protocol.dtypes import DTYPES
from protocol.messages import ONE_WAY, PROTOCOL_VERSION, SyncCommit

SPEC = (Path(__file__).resolve().parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([^`\n]+)`", SPEC))
ROW = re.compile(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \|", re.MULTILINE)


def section(tag: str) -> str:
    """The text below a message's heading."""
    found = re.search(rf"^#### `{tag}`\n(.*?)(?=^##|\Z)", SPEC, re.MULTILINE | re.DOTALL)
    assert found, f"docs/protocol.md has no section for {tag}: add it to section 9"
    return found.group(1)


def type_name(kind: Any) -> str:
    """A field's type in the words of section 2."""
    match kind:
        case msgspec.inspect.BoolType():
            return "bool"
        case msgspec.inspect.IntType():
            return "int"
        case msgspec.inspect.FloatType():
            return "float"
        case msgspec.inspect.StrType() | msgspec.inspect.LiteralType():
            return "str"
        case msgspec.inspect.VarTupleType():
            return f"array of {type_name(kind.item_type)}"
        case msgspec.inspect.DictType():
            return f"map of {type_name(kind.value_type)}"
        case msgspec.inspect.UnionType():
            (inner,) = [each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)]
            return f"{type_name(inner)} or nil"
        case msgspec.inspect.StructType():
            return {"TensorMeta": "tensor", "BucketHeader": "bucket_header"}[kind.cls.__name__]
    raise TypeError(f"no word for {kind}")


def default_name(field: msgspec.inspect.Field) -> str:
    """A field's default as the tables write it; empty if the field is required."""
    if field.required:
        return ""
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return "nil" if value is None else json.dumps(value)


def struct_fields(tag: str) -> tuple[msgspec.inspect.Field, ...]:
    info = msgspec.inspect.type_info(TAGS[tag])
    assert isinstance(info, msgspec.inspect.StructType)
    return info.fields


def codes(module: Any) -> set[str]:
    found = [each for _, each in inspect.getmembers(module, inspect.isclass) if issubclass(each, Exception)]
    return {each.code for each in found}


@pytest.mark.parametrize("tag", sorted(TAGS))
def test_every_field_is_there_with_its_type_and_default(tag: str) -> None:
    rows = [(name, kind.strip(), default.strip()) for name, kind, default in ROW.findall(section(tag))]
    expected = [
        (field.encode_name, type_name(field.type), default_name(field)) for field in struct_fields(tag)
    ]
    assert [(name, kind, str(default)) for name, kind, default in rows] == expected


def test_no_message_is_described_that_does_not_exist() -> None:
    assert set(re.findall(r"^#### `(\w+)`", SPEC, re.MULTILINE)) == set(TAGS)


@pytest.mark.parametrize("tag", sorted(TAGS))
def test_the_words_of_a_closed_list_are_named(tag: str) -> None:
    for field in struct_fields(tag):
        if isinstance(field.type, msgspec.inspect.LiteralType):
            assert all(f"`{word}`" in section(tag) for word in field.type.values)


def test_one_way_messages_are_told_from_requests() -> None:
    one_way = {tag for tag in TAGS if "one way:" in section(tag)}
    assert one_way == {tag for tag, message_type in TAGS.items() if message_type in ONE_WAY}


def test_every_code_and_word_that_crosses_the_wire_is_named() -> None:
    reasons = {str(word) for words in (DiscardReason, EndReason, JobStatus) for word in words}
    expected = codes(live_eval.errors) | codes(protocol.errors) | reasons | {"closed", "internal"}
    assert expected - WORDS == set(), "name these in docs/protocol.md, sections 3, 4 or 8"


def test_limits_and_dtypes_are_those_of_the_code() -> None:
    for field in fields(Limits):
        assert f"| `{field.name}` | {getattr(DEFAULT_LIMITS, field.name)} |" in SPEC
    for dtype in DTYPES.values():
        assert f"| `{dtype.name}` | {dtype.num_bytes} | {dtype.safetensors} |" in SPEC
    assert f"`v` is not {PROTOCOL_VERSION}" in SPEC


def test_the_examples_are_right() -> None:
    example = encode(SyncCommit(sync_id="life-2/7", weight_version=7)).hex(" ")
    shown = re.search(r"^    (84 a1.*) \.\.\.$", SPEC, re.MULTILINE)
    assert shown
    assert example.startswith(" ".join(shown.group(1).split()))

    two_floats = tensor_digest(b"\x00\x00\x80\x3f\x00\x00\x00\x40")
    entries = [("größe", "float32", [2], two_floats), ("a", "bool", [0], tensor_digest(b""))]
    assert {tensor_digest(b""), two_floats, version_digest(entries)} <= WORDS
    lines = "".join(f"{line}\n" for line in re.findall(r'^    (\[".*\])$', SPEC, re.MULTILINE))
    assert xxhash.xxh3_128_hexdigest(lines.encode("ascii")) == version_digest(entries)
