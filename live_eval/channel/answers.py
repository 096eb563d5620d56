"""What all clients do alike with a request before it goes out and with its answer."""

from __future__ import annotations

from live_eval.errors import PeerError, TransportError
from protocol.codec import Limits, encode
from protocol.messages import ONE_WAY, ErrorReply, Message

CLOSED = "closed"
"""Code of the ErrorReply that a server sends last on every connection when it shuts down."""
INTERNAL = "internal"
"""Code of an ErrorReply for a fault of the server itself; its log says more."""


def encode_request(message: Message, *, limits: Limits) -> bytes:
    """The request's bytes; ProtocolError if it cannot be encoded, ValueError if nobody answers it."""
    if isinstance(message, ONE_WAY):
        raise ValueError(f"{type(message).__name__} is never answered: send it with notify")
    return encode(message, limits=limits)


def open_answer(answer: Message | None, what: str) -> Message:
    """The answer to `what`, or the error that it stands for; None stands for a closed connection."""
    if answer is None:
        raise TransportError(f"{what}: the connection was closed without an answer")
    if isinstance(answer, ErrorReply):
        raise PeerError(answer.code, answer.message, answer.detail, what=what)
    return answer
