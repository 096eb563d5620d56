"""A walk over MessagePack bytes that builds nothing.

`scan` proves, before any object is made, that the bytes are exactly one MessagePack value
inside the limits and inside the subset that the protocol uses: nil, booleans, signed 64-bit
integers, finite floats, UTF-8 strings, arrays, and maps with string keys. What it passes can be
unpacked with memory in proportion to the limits: every declared length is backed by bytes
that are there. It knows nothing of messages, and it does not check UTF-8 or repeated keys.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from protocol.errors import LimitExceeded, MalformedMessage

MIB = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a peer may make this process read and hold; a breach is LimitExceeded."""

    max_bytes: int = 64 * MIB
    """Size of one message, and of one frame's payload."""
    max_depth: int = 6
    """Containers inside each other, the envelope counted."""
    max_str_bytes: int = 64 * 1024
    max_array_items: int = 1_000_000
    max_map_items: int = 1_000_000
    max_items: int = 2_000_000
    """Values in the whole message, keys counted: a container of one byte costs 64 in memory."""


DEFAULT_LIMITS = Limits()


# What a head byte announces. Plain integers: the walk below compares one for every value of a message.
_SCALAR, _STR, _ARRAY, _MAP, _INT, _FLOAT, _BIN, _EXT, _INVALID = range(9)
_UINT64 = 0xCF


def _heads() -> tuple[tuple[int, int, int], ...]:
    """For each head byte: its kind; the length that the byte itself holds (bytes of a string,
    items of a container); the number of bytes after it that a number or a length field takes.
    """
    heads = [(_SCALAR, 0, 0)] * 256
    for low in range(16):
        heads[0x80 + low] = (_MAP, low, 0)
        heads[0x90 + low] = (_ARRAY, low, 0)
    for low in range(32):
        heads[0xA0 + low] = (_STR, low, 0)
    for first, kind, widths in (
        (0xC1, _INVALID, (0,)),
        (0xC4, _BIN, (0, 0, 0)),
        (0xC7, _EXT, (0, 0, 0)),
        (0xCA, _FLOAT, (4, 8)),
        (0xCC, _INT, (1, 2, 4, 8)),
        (0xD0, _INT, (1, 2, 4, 8)),
        (0xD4, _EXT, (0, 0, 0, 0, 0)),
        (0xD9, _STR, (1, 2, 4)),
        (0xDC, _ARRAY, (2, 4)),
        (0xDE, _MAP, (2, 4)),
    ):
        for offset, width in enumerate(widths):
            heads[first + offset] = (kind, 0, width)
    return tuple(heads)


_HEADS = _heads()


def scan(data: bytes, *, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raises MalformedMessage or LimitExceeded unless `data` is one allowed value."""
    size = len(data)
    if size > limits.max_bytes:
        raise LimitExceeded(f"{size} bytes in one message, at most {limits.max_bytes} are allowed")
    max_str_bytes = limits.max_str_bytes
    pos = 0
    num_items = 1
    open_above: list[tuple[int, bool]] = []
    # Values still to come in the innermost container; in a map an even number means a key.
    left, in_map = 1, False
    while True:
        while left == 0:
            if not open_above:
                if pos != size:
                    raise MalformedMessage(f"{size - pos} bytes follow the end of the message")
                return
            left, in_map = open_above.pop()
        if pos >= size:
            raise _cut_short(size)
        kind, length, width = _HEADS[data[pos]]
        if in_map and kind != _STR and left % 2 == 0:
            raise LimitExceeded(f"a map key is not a string (offset {pos})")
        left -= 1
        start = pos
        pos += 1 + width
        if pos > size:
            raise _cut_short(size)
        if kind == _SCALAR:
            continue
        if width and kind <= _MAP:
            length = int.from_bytes(data[start + 1 : pos], "big")
        if kind == _STR:
            if length > max_str_bytes:
                raise LimitExceeded(f"a string of {length} bytes, at most {max_str_bytes} are allowed")
            pos += length
            if pos > size:
                raise _cut_short(size)
        elif kind <= _MAP:
            open_above.append((left, in_map))
            in_map = kind == _MAP
            left = _num_values(length, in_map=in_map, depth=len(open_above), limits=limits)
            num_items += left
            if num_items > limits.max_items:
                raise LimitExceeded(f"more than {limits.max_items} values in one message")
            if left > size - pos:  # each value takes a byte at least
                raise _cut_short(size)
        else:
            _check_scalar(data, start, kind, width)


def _cut_short(size: int) -> MalformedMessage:
    return MalformedMessage(f"the message is cut short: it announces more than its {size} bytes")


def _num_values(length: int, *, in_map: bool, depth: int, limits: Limits) -> int:
    """Values inside a container of `length` items, if it is within the limits."""
    if depth > limits.max_depth:
        raise LimitExceeded(f"nested deeper than {limits.max_depth}")
    allowed = limits.max_map_items if in_map else limits.max_array_items
    if length > allowed:
        noun = "a map" if in_map else "an array"
        raise LimitExceeded(f"{noun} of {length} items, at most {allowed} are allowed")
    return 2 * length if in_map else length


def _check_scalar(data: bytes, start: int, kind: int, width: int) -> None:
    """Refuse what is no part of the protocol's subset of MessagePack."""
    if kind == _INT:
        # Above int64 no database or other language takes it; a top bit set means just that.
        if data[start] == _UINT64 and data[start + 1] & 0x80:
            raise LimitExceeded(f"an integer above 2**63 - 1 (offset {start})")
    elif kind == _FLOAT:
        (value,) = struct.unpack_from(">f" if width == 4 else ">d", data, start + 1)
        if not math.isfinite(value):
            raise MalformedMessage(f"a float that is not finite: {value} (offset {start})")
    elif kind == _BIN:
        raise LimitExceeded(f"binary data is not allowed (offset {start})")
    elif kind == _EXT:
        raise LimitExceeded(f"extension types are not allowed (offset {start})")
    else:
        raise MalformedMessage(f"byte 0xc1 is no MessagePack (offset {start})")
