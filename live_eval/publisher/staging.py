"""Host memory into which a sync is copied while the trainer waits, so that it need not wait longer.

A slot has room for one model. Its pages are touched when it is made, because cold pages cost
several copies. Invariant: `stage` returns when the slot owns the bytes, and a slot is never
written while somebody else holds it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from live_eval.publisher.base import NamedTensor, tensor_meta
from protocol.payload import ALIGNMENT, payload_layout

if TYPE_CHECKING:
    from protocol.messages import TensorMeta


SMALL_BYTES = 64 * 1024
"""Up to here torch's own copy costs more for being called than for what it copies."""
PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
"""Others may keep their values elsewhere than at their address."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedBucket:
    """Tensors that lie in a slot as one payload."""

    tensors: tuple[TensorMeta, ...]
    payload: np.ndarray
    """uint8 view of the slot, laid out by protocol.payload."""

    def views(self) -> list[np.ndarray]:
        """The bytes of each tensor, in order."""
        offsets = payload_layout(self.tensors).offsets
        return [
            self.payload[start : start + tensor.num_bytes]
            for start, tensor in zip(offsets, self.tensors, strict=True)
        ]


class StagingSlot:
    """Touched host memory for one sync; page-locked where tensors come from a GPU."""

    def __init__(self, num_bytes: int, *, pinned: bool = False) -> None:
        if pinned:
            self._memory = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)
            self._array = self._memory.numpy()
        else:
            # numpy asks for huge pages, torch's own allocator does not.
            self._array = np.empty(num_bytes, dtype=np.uint8)
            self._memory = torch.from_numpy(self._array)
        self._array.fill(0)
        self._address = self._array.ctypes.data
        self._used = 0
        self._stream: torch.cuda.Stream | None = None

    @property
    def num_bytes(self) -> int:
        """Capacity in bytes."""
        return len(self._array)

    @property
    def num_free(self) -> int:
        """Bytes that are left."""
        return self.num_bytes - self._used

    def clear(self) -> None:
        """Forget what is staged."""
        self._used = 0

    def stage(self, tensors: Sequence[NamedTensor]) -> StagedBucket | None:
        """Copy tensors in as one payload; None if they do not fit. KeyError for an unknown dtype."""
        metas = tuple(tensor_meta(name, tensor) for name, tensor in tensors)
        layout = payload_layout(metas)
        start = -(-self._used // ALIGNMENT) * ALIGNMENT
        if start + layout.num_bytes > self.num_bytes:
            return None
        with self._copying(tensors):
            for (_, tensor), offset in zip(tensors, layout.offsets, strict=True):
                self._copy(tensor, start + offset)
        self._used = start + layout.num_bytes
        return StagedBucket(tensors=metas, payload=self._array[start : self._used])

    def _copy(self, tensor: torch.Tensor, start: int) -> None:
        num_bytes = tensor.nbytes
        if num_bytes and tensor.is_cpu and type(tensor) in PLAIN_TYPES and tensor.data_ptr() == 0:
            # Any copy from it, torch's too, would end the process.
            raise ValueError("a tensor has no memory any more: its storage was released or offloaded")
        if num_bytes <= SMALL_BYTES and _is_plain(tensor):
            ctypes.memmove(self._address + start, tensor.data_ptr(), num_bytes)
        elif num_bytes:
            place = self._memory[start : start + num_bytes]
            place.view(tensor.dtype).view(tensor.shape).copy_(tensor.detach(), non_blocking=True)

    def _copying(self, tensors: Sequence[NamedTensor]) -> _CopyStream:
        on_gpu = next((tensor.device for _, tensor in tensors if tensor.is_cuda), None)
        if on_gpu is not None and self._stream is None:
            self._stream = torch.cuda.Stream(on_gpu)
        return _CopyStream(self._stream if on_gpu is not None else None)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor is one block of host memory that holds its values as they are."""
    return (
        type(tensor) in PLAIN_TYPES
        and tensor.is_cpu
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and not tensor.is_neg()
    )


class _CopyStream:
    """Copies behind what is queued now, beside what is queued next, and waits for them at the end."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream
        self._context = torch.cuda.stream(stream) if stream is not None else None

    def __enter__(self) -> None:
        if self._stream is not None and self._context is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            self._context.__enter__()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._stream is not None and self._context is not None:
            self._context.__exit__(kind, error, trace)
            self._stream.synchronize()


class StagingPool:
    """A fixed number of slots, handed out one at a time; safe for threads."""

    def __init__(self, num_slots: int, slot_bytes: int, *, pinned: bool = False) -> None:
        self._free = [StagingSlot(slot_bytes, pinned=pinned) for _ in range(num_slots)]
        self._changed = threading.Condition()
        self.slot_bytes = slot_bytes

    def take(self, timeout_s: float) -> StagingSlot | None:
        """A cleared slot, or None if none is given back within `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._free:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            slot = self._free.pop() if self._free else None
        if slot is not None:
            slot.clear()
        return slot

    def give_back(self, slot: StagingSlot) -> None:
        """The slot's bytes are needed no more."""
        with self._changed:
            self._free.append(slot)
            self._changed.notify()


def staging_bytes(tensors: Iterable[TensorMeta]) -> int:
    """Size of a slot that holds these tensors, in whatever order and buckets they come."""
    return sum(-(-tensor.num_bytes // ALIGNMENT) * ALIGNMENT for tensor in tensors)
