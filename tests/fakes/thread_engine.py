"""An engine whose ranks are threads of the test: joins and receives for real, fails when told."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import torch

from live_eval.collective import Group, join_group
from live_eval.errors import TransportError

if TYPE_CHECKING:
    from live_eval.publisher.engines import Invitation
    from protocol.messages import BucketHeader


class ThreadEngine:
    """Implements UpdatableEngine; `faults` names the calls that fail."""

    def __init__(self, name: str, *, num_ranks: int = 1) -> None:
        self.name = name
        self.num_ranks = num_ranks
        self.faults: set[str] = set()
        self.life = 0
        self.joins: list[Invitation] = []
        self.calls: list[str] = []
        self.weights: list[dict[str, torch.Tensor]] = [{} for _ in range(num_ranks)]
        self._groups: list[Group] = []
        self._threads = ThreadPoolExecutor(num_ranks)

    def alive(self, timeout_s: float) -> str:
        self._check("alive")
        return f"life {self.life}"

    def join(self, invitation: Invitation) -> None:
        self.joins.append(invitation)
        self._check("join")

        def member(number: int) -> Group:
            return join_group(
                backend=invitation.backend,
                master_address=invitation.master_address,
                master_port=invitation.master_port,
                rank=invitation.rank_offset + number,
                world_size=invitation.world_size,
                group_name=invitation.group_name,
                timeout_s=invitation.timeout_s,
            )

        self._groups = list(self._threads.map(member, range(self.num_ranks)))

    def leave(self, group_name: str, timeout_s: float) -> None:
        self._check("leave")
        for group in self._groups:
            group.leave()
        self._groups = []

    def pause(self, timeout_s: float) -> None:
        self._check("pause")

    def flush(self, timeout_s: float) -> None:
        self._check("flush")

    def resume(self, timeout_s: float) -> None:
        self._check("resume")

    def receive_bucket(self, header: BucketHeader, group_name: str, timeout_s: float) -> None:
        self._check("receive_bucket")
        if "sleep" in self.faults:
            time.sleep(timeout_s)

        def member(number: int) -> None:
            tensors = [torch.empty(t.shape, dtype=getattr(torch, t.dtype)) for t in header.tensors]
            self._groups[number].broadcast(tensors, timeout_s=timeout_s)
            names = [tensor.name for tensor in header.tensors]
            self.weights[number].update(zip(names, tensors, strict=True))

        list(self._threads.map(member, range(self.num_ranks)))

    def _check(self, call: str) -> None:
        self.calls.append(call)
        if call in self.faults:
            raise TransportError(f"{self.name} fails in {call}")
