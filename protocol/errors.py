"""Errors of the wire.

ProtocolError
 |- MalformedMessage    bytes that are no message: bad MessagePack, wrong field types
 |- LimitExceeded       deeper, longer or larger than protocol.codec's limits
 |- UnknownMessage      a well-formed envelope whose type nobody defined
 `- UnsupportedVersion  an envelope of another protocol version
"""

from __future__ import annotations


class ProtocolError(Exception):
    """A message that cannot be accepted; `code` is what crosses the wire in an ErrorReply."""

    code = "protocol"


class MalformedMessage(ProtocolError):
    """The bytes are not a message of this protocol."""

    code = "malformed_message"


class LimitExceeded(ProtocolError):
    """The message is larger, longer or deeper than allowed."""

    code = "limit_exceeded"


class UnknownMessage(ProtocolError):
    """The envelope is sound, its type is not known here."""

    code = "unknown_message"


class UnsupportedVersion(ProtocolError):
    """The sender speaks another protocol version."""

    code = "unsupported_version"
