"""The message that opens a sync, the same from every publisher.

Invariant: all sources of one sync give it one id, which follows from the trainer's life and the version.
"""

from __future__ import annotations

import time
from typing import Protocol

from protocol.messages import SyncBegin


class Sender(Protocol):
    """Who sends: one life of a trainer in one run."""

    @property
    def run_id(self) -> str:
        """The run."""
        ...

    @property
    def incarnation_id(self) -> str:
        """This life of the trainer."""
        ...


def opening(
    sender: Sender,
    weight_version: int,
    *,
    sources: tuple[str, ...],
    rollout_id: int | None,
    train_step: int | None,
    num_bytes: int = 0,
) -> SyncBegin:
    """The begin of this version; what is no integer is 0 in it, which no receiver accepts."""
    return SyncBegin(
        sync_id=f"{sender.incarnation_id}/{weight_version}",
        run_id=sender.run_id,
        incarnation_id=sender.incarnation_id,
        weight_version=weight_version if type(weight_version) is int else 0,
        sources=sources,
        num_bytes=num_bytes,
        rollout_id=rollout_id,
        train_step=train_step,
        began_at=time.time(),
    )
