"""The groups that this process is a member of.

Knows names and members, no syncs. Safe for threads. Invariants: joins of different groups run
side by side, so their order does not matter; joining a name again lets the old group go first;
no group stays that has failed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from live_eval.collective import Group, join_group
from live_eval.errors import TransportError

if TYPE_CHECKING:
    import numpy as np

    from protocol.messages import JoinGroup

logger = logging.getLogger(__name__)


class GroupTable:
    """Group name -> membership."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, Group] = {}
        self._timeouts: dict[str, float] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Groups that this process is in now."""
        with self._lock:
            return tuple(self._groups)

    def join(self, request: JoinGroup) -> None:
        """Join as told; blocks for `timeout_s` at most. TransportError if the others do not come."""
        self.leave(request.group_name)
        group = join_group(
            backend=request.backend,
            master_address=request.master_address,
            master_port=request.master_port,
            rank=request.rank,
            world_size=request.world_size,
            group_name=request.group_name,
            timeout_s=request.timeout_s,
        )
        with self._lock:
            old = self._groups.pop(request.group_name, None)
            self._groups[request.group_name] = group
            self._timeouts[request.group_name] = request.timeout_s
        if old is not None:  # two joins of one name at once: the later one is meant
            old.leave()
        logger.info("joined group %s as rank %d of %d", group.name, group.rank, group.world_size)

    def leave(self, name: str) -> None:
        """Let the group go, if there is one; never waits."""
        with self._lock:
            group = self._groups.pop(name, None)
            self._timeouts.pop(name, None)
        if group is not None:
            group.leave()
            logger.info("left group %s", name)

    def leave_all(self) -> None:
        """Let all groups go."""
        for name in self.names:
            self.leave(name)

    def check(self, name: str) -> None:
        """TransportError unless this process is in the group."""
        self._get(name)

    def receive(self, name: str, memory: Sequence[np.ndarray]) -> None:
        """Receive one broadcast into each uint8 array, in order.

        TransportError if the group is not known or breaks; a group that broke is gone.
        """
        group, timeout_s = self._get(name)
        targets = [torch.from_numpy(array) for array in memory]
        on_host = group.device.type == "cpu"
        buffers = (
            targets if on_host else [torch.empty_like(target, device=group.device) for target in targets]
        )
        try:
            group.broadcast(buffers, timeout_s=timeout_s)
        except TransportError:
            self.leave(name)
            raise
        if not on_host:
            for target, buffer in zip(targets, buffers, strict=True):
                target.copy_(buffer)

    def _get(self, name: str) -> tuple[Group, float]:
        with self._lock:
            group = self._groups.get(name)
            if group is None:
                raise TransportError(
                    f"group {name!r}: this process is not in it, only in {list(self._groups)}"
                )
            return group, self._timeouts[name]
