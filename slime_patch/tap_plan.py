"""What a trainer must know to publish, as plain values, and the tap made from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from slime_patch.tap import MemberTap, WeightTap, seat_receiver

if TYPE_CHECKING:
    from live_eval.publisher.base import Publisher
    from live_eval.publisher.ray_link import RayLink
    from slime_patch.tap import Updater
    from slime_patch.updates import Kind, Transport

TAP_ATTRIBUTE = "live_eval_tap"
"""Attribute of slime's arguments that holds a plan as a dict."""
SLACK = 1.1
"""Of a pipeline rank's share: ranks are not equal, the first and the last hold the vocabulary."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TapPlan:
    """Plain values only: slime writes its arguments into checkpoints."""

    kind: Kind
    transport: Transport
    receiver: str
    """Name of the receiver's actor."""
    namespace: str
    run_id: str
    incarnation_id: str
    """This life of the training; all sources share it."""
    num_sources: int
    staging_bytes: int
    """Room for the whole model."""
    deadline_s: float

    def as_dict(self) -> dict[str, Any]:
        """For slime's arguments."""
        return asdict(self)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of all sources of a sync."""
        return tuple(f"pp_{rank}" for rank in range(self.num_sources))

    @property
    def slot_bytes(self) -> int:
        """Staging of one source; a tap whose source sends more makes a larger one for the next sync."""
        if self.num_sources == 1:
            return self.staging_bytes
        return int(self.staging_bytes / self.num_sources * SLACK)


def make_tap(updater: Updater, plan: TapPlan) -> WeightTap:
    """Tap this rank's updater. ConfigError if it is none that can be tapped."""
    if plan.transport == "nccl":
        return _member_tap(updater, plan)
    return WeightTap(updater, lambda slot_bytes: _publisher(plan, slot_bytes), slot_bytes=plan.slot_bytes)


def _link(plan: TapPlan) -> RayLink:
    import ray

    from live_eval.publisher.ray_link import RayLink

    return RayLink(ray.get_actor(plan.receiver, namespace=plan.namespace))


def _pipeline_source() -> str:
    from megatron.core import mpu  # pyright: ignore[reportMissingImports]

    return f"pp_{mpu.get_pipeline_model_parallel_rank()}"


def _publisher(plan: TapPlan, slot_bytes: int) -> Publisher:
    import torch

    from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher

    return RayRefPublisher(
        _link(plan),
        RayPublisherConfig(
            run_id=plan.run_id,
            slot_bytes=slot_bytes,
            source=_pipeline_source(),
            sources=plan.sources,
            incarnation_id=plan.incarnation_id,
            deadline_s=plan.deadline_s,
            pinned=torch.cuda.is_available(),
        ),
    )


def _member_tap(updater: Updater, plan: TapPlan) -> MemberTap:
    import ray

    from live_eval.publisher.member import MemberConfig

    config = MemberConfig(
        run_id=plan.run_id,
        source=_pipeline_source(),
        sources=plan.sources,
        incarnation_id=plan.incarnation_id,
        deadline_s=plan.deadline_s,
    )
    return seat_receiver(updater, _link(plan), config, get=ray.get, ready=lambda: ray.put(None))
