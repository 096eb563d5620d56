"""How a payload is named to a receiver on this host that reads it where it lies.

Knows the messages and this process's addresses; not who is asked. Invariant: a probe's mark is nobody
else's, so a receiver that finds it at its address reads this process and no other of the same number.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass

import numpy as np

from protocol.messages import MemoryProbe, MemoryRange


@dataclass(frozen=True, slots=True, eq=False)
class InPlace:
    """A payload that is handed over by saying where it is; it must not change until that is answered."""

    payload: np.ndarray
    """Contiguous uint8."""

    @property
    def range(self) -> MemoryRange:
        """What the receiver is told."""
        return MemoryRange(pid=os.getpid(), address=self.payload.ctypes.data, num_bytes=self.payload.nbytes)


class Mark:
    """Characters in this process's memory by which another one knows that it reads this process."""

    def __init__(self) -> None:
        self._text = secrets.token_hex(16)
        self._memory = np.frombuffer(self._text.encode("ascii"), dtype=np.uint8)

    def probe(self, payload: np.ndarray) -> MemoryProbe:
        """The question whether mark and payload can be read."""
        return MemoryProbe(
            pid=os.getpid(),
            address=self._memory.ctypes.data,
            mark=self._text,
            payload=payload.ctypes.data,
        )
