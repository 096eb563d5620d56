"""What a trainer must know to publish, as plain values, and the tap made from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from live_eval.mailbox import Mailbox
from slime_patch.file_tap import FileTap, Sender
from slime_patch.tap import MemberTap, SyncNote, WeightTap, seat_receiver
from slime_patch.tensor_tap import TensorTap

if TYPE_CHECKING:
    from live_eval.publisher.base import Publisher
    from live_eval.publisher.meter import SyncMeter
    from live_eval.publisher.ray_link import RayLink
    from slime_patch.tap import Updater
    from slime_patch.updates import Kind, Transport

TAP_ATTRIBUTE = "live_eval_tap"
"""Attribute of slime's arguments that holds a plan as a dict."""
SLACK = 1.1
"""Of a pipeline rank's share: ranks are not equal, the first and the last hold the vocabulary."""


class Tap(Protocol):
    """What a training actor does with its tap."""

    note: SyncNote
    """Of the next update."""
    meter: SyncMeter
    """What updates cost the trainer and what became of them, for its own log."""

    def close(self, timeout_s: float) -> None:
        """Let the last version be handed over, within `timeout_s` seconds."""


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
    mail_dir: str = ""
    """Directory of transport disk."""

    def as_dict(self) -> dict[str, Any]:
        """For slime's arguments."""
        return asdict(self)

    @property
    def life(self) -> str:
        """A short name of the incarnation."""
        return self.incarnation_id[:12]

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


def make_tap(updater: Any, plan: TapPlan) -> Tap:
    """Tap this rank's updater. ConfigError if it is none that can be tapped."""
    match plan.kind:
        case "files" | "deltas":
            return _file_tap(updater, plan)
        case "tensors":
            return _tensor_tap(updater, plan)
        case "broadcast":
            return _member_tap(updater, plan) if plan.transport == "nccl" else _chunk_tap(updater, plan)


def _link(plan: TapPlan) -> RayLink:
    import ray

    from live_eval.publisher.ray_link import RayLink

    def find() -> Any:
        return ray.get_actor(plan.receiver, namespace=plan.namespace)

    return RayLink(find(), find=find)


def _pipeline_source() -> str:
    from megatron.core import mpu  # pyright: ignore[reportMissingImports]

    return f"pp_{mpu.get_pipeline_model_parallel_rank()}"


def _publisher(plan: TapPlan, source: str, sources: tuple[str, ...], slot_bytes: int) -> Publisher:
    import torch

    from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher

    config = RayPublisherConfig(
        run_id=plan.run_id,
        slot_bytes=slot_bytes,
        source=source,
        sources=sources,
        incarnation_id=plan.incarnation_id,
        deadline_s=plan.deadline_s,
        pinned=torch.cuda.is_available(),
    )
    if plan.transport == "ray":
        return RayRefPublisher(_link(plan), config)
    from live_eval.publisher.mail import MailSender

    sender = MailSender(
        Mailbox(Path(plan.mail_dir)),
        life=plan.life,
        source=source,
        sync_timeout_s=config.sync_timeout_s,
    )
    return RayRefPublisher(None, config, sender=sender)


def _chunk_tap(updater: Updater, plan: TapPlan) -> WeightTap:
    return WeightTap(
        updater,
        lambda slot_bytes: _publisher(plan, _pipeline_source(), plan.sources, slot_bytes),
        slot_bytes=plan.slot_bytes,
    )


def _tensor_tap(updater: Any, plan: TapPlan) -> TensorTap:
    import torch.distributed as dist

    def engine_ranks() -> list[int]:
        group = updater._ipc_gather_group
        return [] if group is None else dist.get_process_group_ranks(group)

    return TensorTap(
        updater,
        lambda source, sources, slot_bytes: _publisher(plan, source, sources, slot_bytes),
        staging_bytes=plan.staging_bytes,
        engine_ranks=engine_ranks,
    )


def _file_tap(updater: Any, plan: TapPlan) -> FileTap:
    import torch.distributed as dist

    return FileTap(
        updater,
        Mailbox(Path(plan.mail_dir)),
        Sender(run_id=plan.run_id, incarnation_id=plan.incarnation_id),
        main=dist.get_rank() == 0,
        deltas=plan.kind == "deltas",
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
