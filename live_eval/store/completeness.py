"""Whether what a sync carries is the model: names, dtypes, shapes, and the tensors that belong together.

Pure: compares with the base checkpoint, reads no bytes. Raises VersionRefused with the one reason
that the record of the sync will carry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from live_eval.errors import VersionRefused
from live_eval.reasons import DiscardReason

if TYPE_CHECKING:
    from live_eval.store.base import BaseCheckpoint
    from protocol.messages import TensorMeta

_SHOWN = 3
"""How many names a message lists."""


def check_known(base: BaseCheckpoint, metas: Iterable[TensorMeta]) -> None:
    """Refuse a tensor that the model does not have, or has in another dtype or shape."""
    known = base.known()
    for meta in metas:
        want = known.get(meta.name)
        if want is None:
            raise VersionRefused(DiscardReason.UNKNOWN_TENSOR, f"the model has no tensor {meta.name!r}")
        if meta.dtype != want.dtype:
            raise VersionRefused(
                DiscardReason.WRONG_DTYPE, f"{meta.name!r} came as {meta.dtype}, the model has {want.dtype}"
            )
        if tuple(meta.shape) != want.shape:
            raise VersionRefused(
                DiscardReason.WRONG_SHAPE,
                f"{meta.name!r} came with shape {list(meta.shape)}, the model has {list(want.shape)}",
            )


def check_whole(base: BaseCheckpoint, digests: Mapping[str, str]) -> None:
    """Refuse a set of tensors (name -> digest) that is not a whole model.

    Reasons: empty, incomplete (a tensor is missing, or a quantized one came without its scale), and
    tied_mismatch (the output head differs from the embedding that the config says it is).
    """
    if not digests:
        raise VersionRefused(DiscardReason.EMPTY, "the sync carried no tensor")
    missing = [name for name in base.expected() if name not in digests]
    if missing:
        raise VersionRefused(DiscardReason.INCOMPLETE, f"missing: {_some(missing)}")
    # Either may be absent by pattern, but a scale and a weight of two versions do not fit each other.
    for name in base.tensors:
        for scale in base.companions(name):
            if (name in digests) != (scale in digests):
                sent, lost = (name, scale) if name in digests else (scale, name)
                raise VersionRefused(DiscardReason.INCOMPLETE, f"{sent!r} came without {lost!r}")
    if base.tied_pair:
        head, embedding = base.tied_pair
        if head in digests and digests[head] != digests.get(embedding):
            raise VersionRefused(
                DiscardReason.TIED_MISMATCH,
                f"config.json ties {head!r} to {embedding!r}, but their bytes differ",
            )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
