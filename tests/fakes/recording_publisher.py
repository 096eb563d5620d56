"""A publisher that writes down what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from live_eval.publisher.base import NamedTensor, SyncReport

if TYPE_CHECKING:
    import torch

    from protocol.messages import SyncOutcome


class RecordingPublisher:
    """A publisher that copies what it is given, as the real one does, and can be told to fail."""

    def __init__(self, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self.log: list[Any] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.fails_at = ""
        self.closed = False
        self.held_before = 0.0
        self.ended: list[SyncOutcome] = []
        """What is told when it is asked next."""

    def _step(self, name: str, *what: Any) -> None:
        if self.fails_at == name:
            raise RuntimeError(f"told to fail at {name}")
        self.log.append((name, *what))

    def begin(
        self,
        weight_version: int,
        *,
        rollout_id: int | None = None,
        train_step: int | None = None,
        num_bytes: int = 0,
        held_s: float = 0.0,
    ) -> None:
        self.held_before = held_s
        self._step("begin", weight_version, rollout_id, train_step)

    def put_bucket(self, tensors: Sequence[NamedTensor]) -> None:
        self._step("put_bucket", [name for name, _ in tensors])
        self.tensors |= {name: tensor.clone() for name, tensor in tensors}

    def commit(self) -> SyncReport:
        self._step("commit")
        return SyncReport(weight_version=1, published=True, reason="", held_s=0.25)

    def abort(self, reason: str) -> None:
        self._step("abort", reason)

    def outcomes(self) -> list[SyncOutcome]:
        found, self.ended = self.ended, []
        return found

    def close(self, timeout_s: float = 10.0) -> None:
        self.closed = True
