"""A sync, from its begin to its outcome: what publisher and receiver say to each other on any transport."""

from __future__ import annotations

from typing import Literal

import msgspec

from protocol.dtypes import DTYPES
from protocol.message import Message

MAX_NAME_BYTES = 1024
"""UTF-8 bytes of a tensor's name."""
MAX_RANK = 64
"""Dimensions of a tensor; torch and numpy end here too."""
MAX_ELEMENTS = 2**53
"""Elements of a tensor stay below: exact in languages whose numbers are doubles."""


class TensorMeta(msgspec.Struct, frozen=True, array_like=True):
    """One tensor of a bucket: HF name, dtype (see protocol.dtypes), shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Size of the tensor's data in bytes; KeyError if the dtype is unknown."""
        size = DTYPES[self.dtype].num_bytes
        for dim in self.shape:
            size *= dim
        return size

    def problem(self) -> str:
        """Why no tensor can be like this; empty if one can."""
        if not self.name or len(self.name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
            return f"a tensor name must have 1 to {MAX_NAME_BYTES} bytes: {self.name[:64]!r}"
        if self.dtype not in DTYPES:
            return f"{self.name[:64]!r} has the unknown dtype {self.dtype[:64]!r}"
        if len(self.shape) > MAX_RANK:
            return f"{self.name[:64]!r} has {len(self.shape)} dimensions, at most {MAX_RANK} are allowed"
        elements = 1
        for dim in self.shape:
            if dim < 0:
                return f"{self.name[:64]!r} has the negative dimension {dim}"
            elements *= max(dim, 1)
        if elements >= MAX_ELEMENTS:
            return f"{self.name[:64]!r} has 2**53 elements or more"
        return ""


# --- publisher -> receiver -------------------------------------------------------------


class SyncBegin(Message, frozen=True, kw_only=True):
    """Publisher, each source: a weight update starts. Answered by SyncAccepted, or SyncOutcome if refused."""

    sync_id: str
    """Unique to this attempt; every later message of the sync carries it."""
    run_id: str
    incarnation_id: str
    """Unique to one life of the trainer; a restarted trainer makes a new one."""
    weight_version: int
    sources: tuple[str, ...]
    """Names of all senders (pipeline ranks); the sync is complete when each is done."""
    num_bytes: int = 0
    """Sum of all tensors' sizes if the publisher knows it, else 0."""
    rollout_id: int | None = None
    train_step: int | None = None
    began_at: float = 0.0
    """Publisher's clock, seconds since the epoch."""
    held_s: float | None = None
    """Seconds for which the sync held the training thread, where that is over before it is begun here."""


class BucketHeader(Message, frozen=True, kw_only=True):
    """Source: what the next bucket holds, in the order in which its bytes travel.

    Answered by BucketStored, or by SyncOutcome once the sync has ended.
    """

    sync_id: str
    source: str
    index: int
    """0, 1, 2, ... per source."""
    weight_version: int
    tensors: tuple[TensorMeta, ...]

    def problem(self) -> str:
        """The first tensor's problem that has one."""
        return next((problem for tensor in self.tensors if (problem := tensor.problem())), "")


class SourceDone(Message, frozen=True, kw_only=True):
    """Source: all its buckets are sent; these are the digests of what it sent.

    Answered by Ok, or by SyncOutcome once the sync has ended.
    """

    sync_id: str
    source: str
    num_buckets: int
    digests: dict[str, str] = msgspec.field(default_factory=dict)
    """Tensor name -> xxh3-128 hex of its bytes. Empty where the source cannot hash."""
    held_s: float | None = None
    """Seconds for which the sync held the training thread, where its begin could not say so."""


class SyncCommit(Message, frozen=True, kw_only=True):
    """Publisher: the update is over and whole. Answered by SyncOutcome, when every source is done."""

    sync_id: str
    weight_version: int


class SyncAbort(Message, frozen=True, kw_only=True):
    """Publisher: give the update up. Answered by SyncOutcome."""

    sync_id: str
    reason: str
    detail: str = ""
    held_s: float | None = None
    """Seconds for which the sync held the training thread."""


class SyncGivenUp(Message, frozen=True, kw_only=True):
    """Publisher: this weight version will never be sent; record it. Answered by SyncOutcome.

    Harmless where the receiver knows the sync already: what it recorded then stands.
    """

    sync_id: str
    run_id: str
    incarnation_id: str
    weight_version: int
    reason: str
    detail: str = ""
    rollout_id: int | None = None
    train_step: int | None = None
    held_s: float | None = None
    """Seconds for which the sync held the training thread."""


# --- receiver -> publisher -------------------------------------------------------------


class SyncAccepted(Message, frozen=True, kw_only=True):
    """Receiver: begin is taken; this is the policy version the sync will have if sealed."""

    sync_id: str
    policy_version: int


class BucketStored(Message, frozen=True, kw_only=True):
    """Receiver: the bucket's bytes are in the store; its payload may be freed."""

    sync_id: str
    source: str
    index: int


class SyncOutcome(Message, frozen=True, kw_only=True):
    """Receiver: how the sync ended."""

    sync_id: str
    weight_version: int
    state: Literal["sealed", "discarded"]
    policy_version: int | None = None
    reason: str = ""
    """Empty when sealed, else one of live_eval.reasons.DiscardReason."""
    detail: str = ""
    digest: str = ""
    num_tensors: int = 0
    num_bytes: int = 0
