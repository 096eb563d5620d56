"""The safetensors header: reading it strictly, building it, and laying tensors out behind it.

Knows the file format, not what a model should hold. Invariant: a header that `read_header`
accepts describes the file exactly - known dtypes, offsets without gaps or overlaps, and not one
byte more or less than the data it announces.
"""

from __future__ import annotations

import json
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from live_eval.errors import CorruptVersion
from protocol.dtypes import BY_SAFETENSORS, DTYPES
from protocol.messages import TensorMeta

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit."""
DATA_ALIGNMENT = 64
"""Tensor data starts on a cache line; the format asks for 8."""
CHUNK_BYTES = 4 << 20
"""Bytes read at a time: a multiple of every element size, small enough to stay in cache."""
_LENGTH = struct.Struct("<Q")


class TensorSlot(NamedTuple):
    """Where a tensor lies in its file."""

    meta: TensorMeta
    begin: int
    """Offset of its first byte from the start of the file."""
    end: int


class FileHeader(NamedTuple):
    """One safetensors file as its header describes it."""

    slots: dict[str, TensorSlot]
    num_bytes: int
    """Size of the whole file."""


def layout(metas: Iterable[TensorMeta]) -> list[TensorMeta]:
    """The order of tensors in a file: by descending element size, so that each one is aligned."""
    return sorted(metas, key=lambda meta: -DTYPES[meta.dtype].num_bytes)


def build_header(metas: Sequence[TensorMeta]) -> tuple[bytes, FileHeader]:
    """Header bytes for tensors in this order, padded with spaces, and the slots they get."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # transformers asks for the format
    offset = 0
    for meta in metas:
        end = offset + meta.num_bytes
        table[meta.name] = {
            "dtype": DTYPES[meta.dtype].safetensors,
            "shape": list(meta.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH.size + len(text)) % DATA_ALIGNMENT)
    start = _LENGTH.size + len(text)
    slots: dict[str, TensorSlot] = {}
    for meta in metas:
        begin, end = table[meta.name]["data_offsets"]
        slots[meta.name] = TensorSlot(meta, start + begin, start + end)
    return _LENGTH.pack(len(text)) + text, FileHeader(slots, start + offset)


def read_header(path: Path) -> FileHeader:
    """Read and check the header of a safetensors file; CorruptVersion if anything is off."""
    try:
        status = path.stat()
        if stat.S_ISFIFO(status.st_mode):  # opening it would wait for somebody who writes
            raise CorruptVersion(f"{path}: this is a pipe and no file")
        size = status.st_size
        with path.open("rb") as file:
            prefix = file.read(_LENGTH.size)
            if len(prefix) < _LENGTH.size:
                raise CorruptVersion(f"{path}: {size} bytes are too few for a safetensors header")
            (length,) = _LENGTH.unpack(prefix)
            if length > min(MAX_HEADER_BYTES, size - _LENGTH.size):
                raise CorruptVersion(
                    f"{path}: header length {length} does not fit a file of {size} bytes; it is truncated or "
                    "no safetensors file"
                )
            text = file.read(length)
    except OSError as error:
        raise CorruptVersion(f"{path}: cannot be read ({error.strerror})") from error
    start = _LENGTH.size + length
    slots = _slots(path, _parse(path, text), start)
    announced = max((slot.end for slot in slots.values()), default=start)
    if announced != size:
        raise CorruptVersion(f"{path}: the header announces {announced} bytes, the file has {size}")
    return FileHeader(slots, size)


def read_chunks(file: FileIO, slot: TensorSlot) -> Iterator[np.ndarray]:
    """A tensor's bytes as uint8 arrays of whole elements; each is overwritten by the next.

    Reads rather than maps, because a file that shrinks under a mapping kills the process.
    CorruptVersion if the file ends early.
    """
    left = slot.end - slot.begin
    buffer = np.empty(min(CHUNK_BYTES, left), dtype=np.uint8)
    file.seek(slot.begin)
    while left:
        chunk = buffer.data[: min(left, buffer.size)]
        filled = 0
        while filled < len(chunk):
            count = file.readinto(chunk[filled:])
            if not count:
                raise CorruptVersion(f"{file.name}: ends inside tensor {slot.meta.name!r}")
            filled += count
        left -= filled
        yield buffer[:filled]


def _parse(path: Path, text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            raise CorruptVersion(f"{path}: the header names a key twice")
        return table

    try:
        table = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CorruptVersion(f"{path}: the header is not JSON ({error})") from error
    if not isinstance(table, dict):
        raise CorruptVersion(f"{path}: the header is not a JSON object")
    table.pop("__metadata__", None)
    return table


def _slots(path: Path, table: dict[str, Any], start: int) -> dict[str, TensorSlot]:
    slots = {name: _slot(path, name, entry, start) for name, entry in table.items()}
    expected = start
    for slot in sorted(slots.values(), key=lambda slot: (slot.begin, slot.end)):
        if slot.begin != expected:
            raise CorruptVersion(f"{path}: a gap or an overlap before tensor {slot.meta.name!r}")
        expected = slot.end
    return slots


def _slot(path: Path, name: str, entry: Any, start: int) -> TensorSlot:
    try:
        code, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, begin, end]
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptVersion(f"{path}: the header entry of {name!r} is malformed") from error
    if any(type(number) is not int or number < 0 for number in numbers):
        raise CorruptVersion(f"{path}: {name!r} has a shape or offset that is no natural number")
    dtype = BY_SAFETENSORS.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise CorruptVersion(f"{path}: {name!r} has dtype {code!r}, which is not supported")
    meta = TensorMeta(name, dtype.name, tuple(shape))
    if end - begin != meta.num_bytes:
        raise CorruptVersion(
            f"{path}: {name!r} is {dtype.name}{list(shape)}, {meta.num_bytes} bytes, but has {end - begin}"
        )
    return TensorSlot(meta, start + begin, start + end)
