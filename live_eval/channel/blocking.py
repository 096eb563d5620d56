"""The client for code without an event loop: a trainer, a script, a command.

Invariant: no call takes longer than the time it was given, whatever the server does, and
`notify` never raises for what a peer or the file system does.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from live_eval.channel.answers import encode_request, open_answer
from live_eval.errors import TransportError
from protocol.codec import DEFAULT_LIMITS, Limits, decode, encode, tag_of
from protocol.errors import ProtocolError
from protocol.frames import read_frame, write_frame

if TYPE_CHECKING:
    from protocol.messages import Message

log = logging.getLogger(__name__)

NOTIFY_TIMEOUT_S = 0.05


class BlockingClient:
    """Requests to the server at `path`, from any thread, one at a time."""

    def __init__(self, path: Path, *, limits: Limits = DEFAULT_LIMITS) -> None:
        self.path = path
        self._limits = limits
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def request(self, message: Message, *, timeout_s: float) -> Message:
        """The server's answer.

        `timeout_s` seconds bound all of it: waiting for another thread's request, connecting,
        sending, receiving. Raises PeerError if the answer is an ErrorReply; TransportError if there
        is none in time or the server is gone, and then it may have carried the request out all
        the same; ProtocolError if `message` cannot be sent.
        """
        payload = encode_request(message, limits=self._limits)
        deadline = time.monotonic() + timeout_s
        what = f"{tag_of(type(message))} to {self.path}"
        try:
            if not self._lock.acquire(timeout=max(timeout_s, 0.0)):
                raise TimeoutError("another thread's request is still open")
            try:
                answer = self._exchange(payload, deadline)
            finally:
                self._lock.release()
        except TimeoutError as error:
            raise TransportError(f"{what}: no answer within {timeout_s:g} s") from error
        except (OSError, ProtocolError) as error:
            raise TransportError(f"{what}: {error}") from error
        return open_answer(answer, what)

    def _exchange(self, payload: bytes, deadline: float) -> Message | None:
        if self._sock is None or _is_stale(self._sock):
            self.close()
            self._sock = _connect(self.path, deadline)
        sock, answered = self._sock, False
        try:
            write_frame(sock, payload, deadline=deadline, max_bytes=self._limits.max_bytes)
            reply = read_frame(sock, deadline=deadline, max_bytes=self._limits.max_bytes)
            answer = None if reply is None else decode(reply, limits=self._limits)
            answered = answer is not None
            return answer
        finally:
            # Late or broken: what comes on this connection is no answer to the next request.
            if not answered:
                self.close()


def notify(path: Path, message: Message) -> bool:
    """Send a one-way message to the server at `path`, if it takes it within 50 ms.

    Best effort: returns whether the message was handed over, and never raises for a server that
    is gone, full or frozen. Raises nothing for a message that cannot be encoded either: it is logged.
    """
    try:
        payload = encode(message)
        deadline = time.monotonic() + NOTIFY_TIMEOUT_S
        sock = _connect(path, deadline)
        with sock:
            write_frame(sock, payload, deadline=deadline)
        return True
    except ProtocolError as error:
        log.warning("%s was not sent: %s", type(message).__name__, error)
    except (OSError, ValueError) as error:  # ValueError: a path that holds a zero byte
        log.debug("nobody took %s at %s: %s", type(message).__name__, path, error)
    return False


def _connect(path: Path, deadline: float) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        sock.connect(os.fspath(path))
    except BaseException:
        sock.close()
        raise
    return sock


def _is_stale(sock: socket.socket) -> bool:
    """Whether an idle connection has ended or holds what nobody asked for."""
    sock.setblocking(False)
    try:
        sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
