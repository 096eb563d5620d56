"""A payload in the memory of the process that sends it, on this host.

Knows how to read another process's memory, and the messages that name it. Invariant: no more than a
window of it is here at a time, and nothing that could not be read is passed off as read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from live_eval.process_memory import number_space, read_memory
from live_eval.reasons import DiscardReason
from live_eval.subscriber.arrival import PIECE_BYTES
from live_eval.subscriber.expected import SyncFault
from protocol.messages import MemoryReach

if TYPE_CHECKING:
    from protocol.messages import MemoryProbe, MemoryRange


def reach(probe: MemoryProbe) -> MemoryReach:
    """Whether the sender's memory can be read from here."""
    mark = np.zeros(len(probe.mark), dtype=np.uint8)
    try:
        read_memory(probe.pid, probe.address, mark)
        read_memory(probe.pid, probe.payload, np.zeros(1, dtype=np.uint8))
    except PermissionError:
        return MemoryReach(pid=os.getpid(), reads=False, forbidden_in=number_space())
    except OSError:
        return MemoryReach(pid=os.getpid(), reads=False)
    return MemoryReach(pid=os.getpid(), reads=mark.tobytes() == probe.mark.encode())


class ForeignPayload:
    """The bytes of one payload, read piece by piece, in whatever order but best from front to back."""

    def __init__(self, where: MemoryRange) -> None:
        self._where = where
        self._window = np.empty(min(PIECE_BYTES, where.num_bytes), dtype=np.uint8)
        self._start = 0
        self._end = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the payload."""
        return self._where.num_bytes

    def piece(self, start: int, end: int) -> np.ndarray:
        """Bytes `start` to `end`, PIECE_BYTES at most; good until the next call.

        SyncFault (payload_lost) if they cannot be read.
        """
        if not self._start <= start <= end <= self._end:
            self._fill(start)
        return self._window[start - self._start : end - self._start]

    def _fill(self, start: int) -> None:
        self._start = self._end = start
        size = min(len(self._window), self.nbytes - start)
        try:
            read_memory(self._where.pid, self._where.address + start, self._window[:size])
        except OSError as error:
            raise SyncFault(DiscardReason.PAYLOAD_LOST, str(error)) from error
        self._end = start + size
