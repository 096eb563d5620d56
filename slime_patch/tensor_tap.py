"""The tap in slime's colocated updater, which hands its weights to the engines as CUDA handles.

Every rank is shown every chunk of a dense model, so rank 0 alone publishes. Where slime routes experts to
the ranks of their engine, each rank is shown only those: then the ranks of the first engine publish
together, rank 0 all that is not routed, each one its experts. Each engine holds the whole model, so the
union of one engine's ranks is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slime_patch.tap import WeightTap

if TYPE_CHECKING:
    import torch

    from live_eval.publisher.base import Publisher

TENSOR_SEAM = "_send_hf_params"
EXPERT_SEAM = "_update_expert_weights"

MakePublisher = Callable[[str, tuple[str, ...], int], "Publisher"]
"""(source, sources, slot bytes) -> publisher."""


class TensorTap(WeightTap):
    """Taps one rank. `engine_ranks` tells the ranks of this rank's engine, in order; empty if it has none."""

    def __init__(
        self,
        updater: Any,
        make_publisher: MakePublisher,
        *,
        staging_bytes: int,
        engine_ranks: Callable[[], list[int]],
    ) -> None:
        super().__init__(updater, self._make, slot_bytes=staging_bytes, seam=TENSOR_SEAM)
        self._make_for = make_publisher
        self._engine_ranks = engine_ranks
        self._staging_bytes = staging_bytes
        self._routed: list[int] | None = None
        """Ranks that publish together; None until the first update."""
        self._in_experts = False
        if hasattr(updater, EXPERT_SEAM):
            self._update_experts = getattr(updater, EXPERT_SEAM)
            setattr(updater, EXPERT_SEAM, self._tapped_experts)

    def _tapped_experts(self, *values: Any, **named: Any) -> Any:
        self._in_experts = True
        try:
            return self._update_experts(*values, **named)
        finally:
            self._in_experts = False

    def _tapped_chunk(self, hf_chunk: list[tuple[str, torch.Tensor]]) -> Any:
        # What is not routed is shown to all ranks: rank 0 publishes it.
        if self._updater.rank and not self._in_experts:  # pyright: ignore[reportAttributeAccessIssue]
            return self._send_chunk(hf_chunk)
        return super()._tapped_chunk(hf_chunk)

    def _is_source(self) -> bool:
        ranks = self._publishing_ranks()
        if ranks != self._routed and self._publisher is not None:
            self._publisher.close(0.0)  # other engines than before: other sources
            self._publisher = None
        self._routed = ranks
        return self._updater.rank in ranks  # pyright: ignore[reportAttributeAccessIssue]

    def _publishing_ranks(self) -> list[int]:
        if not getattr(self._updater, "_expert_transfer_plan", None):
            return [0]
        ranks = self._engine_ranks()
        return ranks if 0 in ranks else []

    def _make(self, slot_bytes: int) -> Publisher:
        ranks = self._routed or [0]
        rank = self._updater.rank  # pyright: ignore[reportAttributeAccessIssue]
        sources = tuple(f"rank_{each}" for each in ranks)
        if rank and slot_bytes == self._staging_bytes:
            # Rank 0 has everything but the others' experts; how much that is nobody knows before.
            self._slot_bytes = slot_bytes = slot_bytes // len(ranks) + slot_bytes // 10
        return self._make_for(f"rank_{rank}", sources, slot_bytes)
