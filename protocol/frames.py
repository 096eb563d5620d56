"""Messages on a byte stream: a 4-byte big-endian length, then that many bytes.

Knows nothing of what the bytes mean. Invariant: a peer that announces much and sends little
makes this side hold what it sent, not what it announced.
"""

from __future__ import annotations

import socket
import time

from protocol.errors import LimitExceeded, MalformedMessage
from protocol.scan import DEFAULT_LIMITS

HEADER_BYTES = 4
_CHUNK_BYTES = 256 * 1024


def frame(payload: bytes, *, max_bytes: int = DEFAULT_LIMITS.max_bytes) -> bytes:
    """`payload` with its length in front; LimitExceeded if it is too long."""
    _check_length(len(payload), max_bytes)
    return len(payload).to_bytes(HEADER_BYTES, "big") + payload


class FrameReader:
    """Cuts a stream that arrives in any pieces into payloads. Pure: it does no I/O."""

    def __init__(self, *, max_bytes: int = DEFAULT_LIMITS.max_bytes) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._error: LimitExceeded | None = None

    @property
    def num_pending(self) -> int:
        """Bytes of a frame that is not complete yet; 0 at a frame boundary."""
        return len(self._buffer)

    @property
    def broken(self) -> bool:
        """Whether the next `feed` raises: no further frame boundary is known, so close the stream."""
        return self._error is not None

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads that `data` completes, in order.

        A length above the limit raises LimitExceeded, once the payloads before it are given out:
        what is taken does not depend on how the stream was cut.
        """
        self._buffer += data
        payloads: list[bytes] = []
        start = 0
        while self._error is None and len(self._buffer) - start >= HEADER_BYTES:
            length = int.from_bytes(self._buffer[start : start + HEADER_BYTES], "big")
            try:
                _check_length(length, self._max_bytes)
            except LimitExceeded as error:
                self._error = error
                break
            end = start + HEADER_BYTES + length
            if len(self._buffer) < end:
                break
            payloads.append(bytes(self._buffer[start + HEADER_BYTES : end]))
            start = end
        del self._buffer[:start]
        if self._error is not None and not payloads:
            self._buffer.clear()
            raise self._error
        return payloads


def write_frame(
    sock: socket.socket,
    payload: bytes,
    *,
    deadline: float | None = None,
    max_bytes: int = DEFAULT_LIMITS.max_bytes,
) -> None:
    """Send one frame on a blocking socket.

    `deadline` is on time.monotonic()'s clock; past it TimeoutError, and the stream is then
    broken in the middle of a frame. OSError as the socket raises it.
    """
    data = frame(payload, max_bytes=max_bytes)
    _apply_deadline(sock, deadline)
    sock.sendall(data)


def read_frame(
    sock: socket.socket, *, deadline: float | None = None, max_bytes: int = DEFAULT_LIMITS.max_bytes
) -> bytes | None:
    """The next payload of a blocking socket; None if the peer closed between two frames.

    `deadline` is on time.monotonic()'s clock and bounds the whole read, however slowly the
    bytes drip in. Raises TimeoutError, LimitExceeded, MalformedMessage if the peer closed
    inside a frame, and OSError as the socket raises it.
    """
    header = _read_exactly(sock, HEADER_BYTES, deadline)
    if not header:
        return None
    length = int.from_bytes(header, "big")
    if len(header) == HEADER_BYTES:
        _check_length(length, max_bytes)
        payload = _read_exactly(sock, length, deadline)
        if len(payload) == length:
            return payload
    raise MalformedMessage("the connection was closed inside a frame")


def _read_exactly(sock: socket.socket, num_bytes: int, deadline: float | None) -> bytes:
    """`num_bytes` from the socket, fewer only if the peer closed first."""
    buffer = bytearray()
    while len(buffer) < num_bytes:
        _apply_deadline(sock, deadline)
        chunk = sock.recv(min(num_bytes - len(buffer), _CHUNK_BYTES))
        if not chunk:
            break
        buffer += chunk
    return bytes(buffer)


def _apply_deadline(sock: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        sock.settimeout(None)
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline has passed")
    sock.settimeout(left)


def _check_length(length: int, max_bytes: int) -> None:
    if length > max_bytes:
        raise LimitExceeded(f"a frame of {length} bytes, at most {max_bytes} are allowed")
