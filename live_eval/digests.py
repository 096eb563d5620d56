"""Digests of tensors and of versions: xxh3-128 in hex.

Knows bytes, not frameworks: whoever holds a torch tensor hands in a contiguous uint8 view of it
(numpy has no bfloat16 and no fp8). xxh3 finds accidents, not attacks. Invariant: equal name,
dtype, shape and bytes of every tensor <=> equal version digest, in whatever order they come.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import xxhash

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Buffer

DigestEntry = tuple[str, str, Sequence[int], str]
"""Name, wire dtype (protocol.dtypes), shape, tensor digest."""


def tensor_digest(buffer: Buffer | np.ndarray) -> str:
    """Digest of a tensor's raw bytes: 32 hex characters.

    Takes any C-contiguous object with the buffer protocol and does not copy it; ValueError for a
    buffer that is not contiguous. A tensor without elements has the digest of no bytes.
    """
    return xxhash.xxh3_128_hexdigest(cast("Buffer", buffer))


def version_digest(entries: Iterable[DigestEntry]) -> str:
    """Digest of a whole version from its tensors' entries, whatever their order: 32 hex characters."""
    state = xxhash.xxh3_128()
    for name, dtype, shape, digest in sorted(entries):
        # A JSON line is unambiguous whatever a name holds; joining with a separator is not.
        state.update(json.dumps([name, dtype, list(shape), digest]).encode())
        state.update(b"\n")
    return state.hexdigest()
