"""The groups that this process is a member of.

Knows names and members, no syncs. Safe for threads. Invariants: joins of different groups run
side by side, so their order does not matter; joining a name again lets the old group go first;
leaving a name ends a join of it; no group stays that has failed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from live_eval.collective import Group, join_group
from live_eval.errors import ConfigError, LiveEvalError, TransportError

if TYPE_CHECKING:
    import numpy as np

    from protocol.messages import JoinGroup

logger = logging.getLogger(__name__)

MAX_TIMEOUT_S = 3600.0
"""Longest time that a member may be asked to wait for the others."""
MAX_JOINS = 16
"""Joins under way at once; one that was given up counts until torch lets go of it."""


class _Join:
    """A join that is under way, in a thread of its own: torch's rendezvous cannot be interrupted."""

    def __init__(self, request: JoinGroup) -> None:
        self.request = request
        self.over = threading.Event()
        """It has ended, or nobody waits for it any more."""
        self.group: Group | None = None
        self.error: LiveEvalError | None = None


class GroupTable:
    """Group name -> membership."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, Group] = {}
        self._timeouts: dict[str, float] = {}
        self._joins: dict[str, _Join] = {}
        """Group name -> the join that is meant."""
        self._num_threads = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Groups that this process is in now."""
        with self._lock:
            return tuple(self._groups)

    def join(self, request: JoinGroup) -> None:
        """Join as told; blocks for `timeout_s` at most, and not beyond a `leave` of that name.

        TransportError if the others do not come or somebody leaves meanwhile; ConfigError for a
        request that cannot be.
        """
        name = request.group_name
        if not 0.0 < request.timeout_s <= MAX_TIMEOUT_S:
            raise ConfigError(
                f"group {name}: timeout_s is {request.timeout_s:g}, between 0 and {MAX_TIMEOUT_S:g} can be"
            )
        self.leave(name)
        join = _Join(request)
        with self._lock:
            if self._num_threads >= MAX_JOINS:
                raise TransportError(f"group {name}: {MAX_JOINS} joins are under way already")
            self._num_threads += 1
            self._joins[name] = join
        threading.Thread(target=self._work, args=(join,), name=f"join-{name}", daemon=True).start()
        join.over.wait(request.timeout_s)
        with self._lock:
            meant = self._joins.get(name) is join
            if meant:
                del self._joins[name]
            old = self._groups.pop(name, None) if meant and join.group is not None else None
            if meant and join.group is not None:
                self._groups[name], self._timeouts[name] = join.group, request.timeout_s
        if old is not None:
            old.leave()
        if join.error is not None:
            raise join.error
        if not meant:
            raise TransportError(f"group {name}: it was left, or joined anew, before all members were there")
        if join.group is None:
            raise TransportError(f"group {name}: not all members came within {request.timeout_s:g} s")
        logger.info("joined group %s as rank %d of %d", name, request.rank, request.world_size)

    def _work(self, join: _Join) -> None:
        request = join.request
        group: Group | None = None
        try:
            group = join_group(
                backend=request.backend,
                master_address=request.master_address,
                master_port=request.master_port,
                rank=request.rank,
                world_size=request.world_size,
                group_name=request.group_name,
                timeout_s=request.timeout_s,
            )
        except LiveEvalError as error:
            join.error = error
        finally:
            with self._lock:
                self._num_threads -= 1
                if self._joins.get(request.group_name) is join:
                    join.group = group
            if group is not None and join.group is None:  # nobody waits for it any more
                group.leave()
            join.over.set()

    def leave(self, name: str) -> None:
        """Let the group go, if there is one, and whoever is joining it; never waits."""
        with self._lock:
            group = self._groups.pop(name, None)
            self._timeouts.pop(name, None)
            join = self._joins.pop(name, None)
        if join is not None:
            join.over.set()
            if join.group is not None:
                join.group.leave()
            logger.info("the join of group %s is given up", name)
        if group is not None:
            group.leave()
            logger.info("left group %s", name)

    def leave_all(self) -> None:
        """Let all groups go."""
        with self._lock:
            names = {*self._groups, *self._joins}
        for name in names:
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
