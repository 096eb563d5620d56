"""What a sync must carry, and the check of one announced tensor against it.

Invariant: a tensor that passes has exactly the name, dtype and shape of the base checkpoint,
so that its place in the store can be laid out before a byte of it arrives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from live_eval.errors import TransportError
from live_eval.reasons import DiscardReason
from protocol.dtypes import DTYPES

if TYPE_CHECKING:
    from protocol.messages import TensorMeta

NUM_NAMES_SHOWN = 3


class SyncFault(TransportError):
    """Something in a sync that makes it no version; `reason` is what the catalogue records."""

    def __init__(self, reason: DiscardReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpectedTensors:
    """The tensors of the model as the base checkpoint has them."""

    required: Mapping[str, TensorMeta]
    """Name -> tensor that every sync must carry."""
    optional: Mapping[str, TensorMeta] = field(default_factory=dict)
    """Name -> tensor that a sync may carry or leave out, such as a tied lm_head."""
    tied: Mapping[str, str] = field(default_factory=dict)
    """Alias -> the name that it shares its bytes with, such as lm_head -> embed_tokens."""

    def check(self, tensor: TensorMeta) -> None:
        """Raise SyncFault unless the tensor is one of the model's, with its dtype and shape."""
        known = self.required.get(tensor.name) or self.optional.get(tensor.name)
        if known is None:
            raise SyncFault(
                DiscardReason.UNKNOWN_TENSOR,
                f"{tensor.name!r} is not in the base checkpoint; the stream must carry Hugging Face names",
            )
        if tensor.dtype not in DTYPES or tensor.dtype != known.dtype:
            raise SyncFault(
                DiscardReason.WRONG_DTYPE,
                f"{tensor.name!r} is announced as {tensor.dtype}, the base checkpoint has {known.dtype}",
            )
        if tuple(tensor.shape) != tuple(known.shape):
            raise SyncFault(
                DiscardReason.WRONG_SHAPE,
                f"{tensor.name!r} is announced with shape {list(tensor.shape)}, "
                f"the base checkpoint has {list(known.shape)}",
            )

    def check_whole(self, digests: Mapping[str, str]) -> None:
        """Raise SyncFault if a required tensor is not among `digests`, or tied ones differ."""
        missing = [name for name in self.required if name not in digests]
        if missing:
            raise SyncFault(
                DiscardReason.INCOMPLETE,
                f"{len(missing)} of {len(self.required)} tensors never came: {shown(missing)}",
            )
        for alias, name in self.tied.items():
            if alias in digests and name in digests and digests[alias] != digests[name]:
                raise SyncFault(
                    DiscardReason.TIED_MISMATCH,
                    f"{alias!r} and {name!r} are tied in the model's config, but came with different bytes",
                )


def shown(names: list[str]) -> str:
    """The first few names, for a message."""
    more = "" if len(names) <= NUM_NAMES_SHOWN else f" and {len(names) - NUM_NAMES_SHOWN} more"
    return ", ".join(names[:NUM_NAMES_SHOWN]) + more
