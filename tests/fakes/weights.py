"""The small model of fakes.sync as torch tensors, as a trainer has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from fakes.sync import MODEL, content

if TYPE_CHECKING:
    from protocol.messages import TensorMeta


def weights(version: int, tensors: Sequence[TensorMeta] = MODEL) -> list[tuple[str, torch.Tensor]]:
    """Named tensors whose bytes are those of `fakes.sync.content`."""
    return [
        (
            meta.name,
            torch.from_numpy(content(meta, version)).view(getattr(torch, meta.dtype)).view(meta.shape),
        )
        for meta in tensors
    ]
