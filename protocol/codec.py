"""Messages to bytes and back: the only place that touches MessagePack.

A message is one map, the envelope: `v` (protocol version), `t` (type tag, the snake_case of
the class name) and the message's fields beside them. Unknown fields are ignored, so that a
newer peer may add some. Invariant: what `encode` returns, `decode` takes under the same
limits, and gives a message equal to the one encoded. Every refusal is a ProtocolError.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgpack
import msgspec

from protocol.errors import MalformedMessage, UnknownMessage, UnsupportedVersion
from protocol.messages import MESSAGES, PROTOCOL_VERSION, Message
from protocol.scan import DEFAULT_LIMITS, Limits, scan

__all__ = ["DEFAULT_LIMITS", "TAGS", "Limits", "decode", "encode", "tag_of"]


def tag_of(message_type: type[Message]) -> str:
    """The wire name of a message type: `sync_begin` for SyncBegin."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message_type.__name__).lower()


TAGS: dict[str, type[Message]] = {tag_of(message_type): message_type for message_type in MESSAGES}
"""Type tag -> message class, for every message of the protocol."""


def encode(message: Message, *, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """The message's bytes.

    Raises MalformedMessage or LimitExceeded for a message that the peer would refuse (wrong
    field types, floats that are not finite, too large), UnknownMessage for a type that is no
    part of the protocol. So a mistake shows at its origin, and not as an answer from afar.
    """
    tag = tag_of(type(message))
    if TAGS.get(tag) is not type(message):
        raise UnknownMessage(f"{type(message).__name__} is not a message of the protocol")
    try:
        fields = msgspec.to_builtins(message)
        data = cast("bytes", msgpack.packb({"v": PROTOCOL_VERSION, "t": tag, **fields}))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise MalformedMessage(f"{tag} cannot be encoded: {error}") from error
    decode(data, limits=limits)
    return data


def decode(data: bytes, *, limits: Limits = DEFAULT_LIMITS) -> Message:
    """The message that `data` holds.

    Raises LimitExceeded, MalformedMessage, UnsupportedVersion or UnknownMessage, and nothing
    else whatever the bytes are. Memory stays in proportion to `limits`.
    """
    scan(data, limits=limits)
    envelope = _unpack(data)
    message_type = _message_type(envelope)
    try:
        message = msgspec.convert(envelope, type=message_type, strict=True)
    except msgspec.ValidationError as error:
        raise MalformedMessage(f"{tag_of(message_type)}: {error}") from error
    if problem := message.problem():
        raise MalformedMessage(f"{tag_of(message_type)}: {problem}")
    return message


def _unpack(data: bytes) -> dict[str, Any]:
    try:
        value = msgpack.unpackb(data, raw=False, strict_map_key=True, object_pairs_hook=_map_of_unique_keys)
    except ValueError as error:  # also UnicodeDecodeError, and msgpack's own errors
        raise MalformedMessage(f"not readable as MessagePack: {error}") from error
    if not isinstance(value, dict):
        raise MalformedMessage(f"the message is {type(value).__name__}, not a map")
    return value


def _map_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise MalformedMessage("a map holds one key twice")
    return fields


def _message_type(envelope: dict[str, Any]) -> type[Message]:
    """The class that the envelope names, taking `v` and `t` out of it."""
    version = envelope.pop("v", None)
    if type(version) is not int:
        raise MalformedMessage("the envelope has no protocol version (`v`, an integer)")
    if version != PROTOCOL_VERSION:
        raise UnsupportedVersion(f"protocol version {version}; this side speaks {PROTOCOL_VERSION}")
    tag = envelope.pop("t", None)
    if not isinstance(tag, str):
        raise MalformedMessage("the envelope has no message type (`t`, a string)")
    if tag not in TAGS:
        raise UnknownMessage(f"unknown message type {tag[:64]!r}")
    return TAGS[tag]
