"""What every message has in common, and the two answers that any server may give.

Messages are frozen and keyword-only. Evolution: a new field has a default, a field never
changes its type, a type tag is never reused; TensorMeta is positional and only appends.
"""

from __future__ import annotations

import msgspec

PROTOCOL_VERSION = 1


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages; a message's name on the wire is the snake_case of its class name."""

    def problem(self) -> str:
        """What makes the values unacceptable beyond their types; empty if nothing does."""
        return ""


class Ok(Message, frozen=True, kw_only=True):
    """The request was carried out and there is nothing else to say."""


class ErrorReply(Message, frozen=True, kw_only=True):
    """Any receiver: the request was refused or failed."""

    code: str
    message: str
    detail: dict[str, str] = msgspec.field(default_factory=dict)
