"""What a trainer sees of live-eval: one sync after the other, each ended by a report.

    publisher.begin(weight_version, rollout_id=..., train_step=...)
    for bucket in bucketize(model_tensors, bucket_bytes):
        publisher.put_bucket(bucket)
    report = publisher.commit()

Knows no transport. A publisher is used by one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from protocol.messages import TensorMeta

if TYPE_CHECKING:
    import torch

    from protocol.messages import SyncOutcome

NamedTensor = tuple[str, "torch.Tensor"]
"""Hugging Face name and tensor, on any device."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncReport:
    """How a sync ended for the trainer."""

    weight_version: int
    published: bool
    """Whether the whole sync was handed over. What the receiver made of it is in `outcomes()`."""
    reason: str
    """Empty if published, else a word of live_eval.reasons.DiscardReason."""
    held_s: float
    """Seconds that the training thread spent in begin, put_bucket and commit."""


class Publisher(Protocol):
    """The trainer's side of all syncs of one source (pipeline rank) in one life of the trainer."""

    def begin(
        self,
        weight_version: int,
        *,
        rollout_id: int | None = None,
        train_step: int | None = None,
        num_bytes: int = 0,
        held_s: float = 0.0,
    ) -> None:
        """A weight update starts; an open one is given up. `num_bytes`: sum of tensor sizes, if known.

        `held_s`: seconds for which the caller has held the training thread for this sync already.
        """

    def put_bucket(self, tensors: Sequence[NamedTensor]) -> None:
        """Some of the update's tensors. They may change as soon as this returns."""

    def commit(self) -> SyncReport:
        """The update is whole."""
        ...

    def abort(self, reason: str) -> None:
        """Give the open sync up; does nothing if none is open. `reason` is for people."""

    def outcomes(self) -> list[SyncOutcome]:
        """What became of syncs, as far as known and not asked for before; in order."""
        ...

    def close(self, timeout_s: float = 10.0) -> None:
        """Finish what was committed, within `timeout_s` seconds, and let go of everything."""


def tensor_meta(name: str, tensor: torch.Tensor) -> TensorMeta:
    """Name, dtype and shape as they cross the wire."""
    return TensorMeta(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def bucketize(named_tensors: Iterable[NamedTensor], bucket_bytes: int) -> Iterator[list[NamedTensor]]:
    """Cut a model into buckets of at most `bucket_bytes`, in order.

    A tensor that is larger has a bucket of its own; no bucket is empty.
    """
    bucket: list[NamedTensor] = []
    size = 0
    for name, tensor in named_tensors:
        if bucket and size + tensor.nbytes > bucket_bytes:
            yield bucket
            bucket, size = [], 0
        bucket.append((name, tensor))
        size += tensor.nbytes
    if bucket:
        yield bucket
