"""Starts the receiver's actor for a job, and writes down what the trainers must know of it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from live_eval.errors import ConfigError, TransportError
from live_eval.rundir import RunDir
from slime_patch.placement import share_directory
from slime_patch.tap_plan import TapPlan

if TYPE_CHECKING:
    from slime_patch.placement import EvalPlace
    from slime_patch.service_actor import Ready
    from slime_patch.settings import Settings

START_TIMEOUT_S = 120.0


def start_receiver(
    settings: Settings, place: EvalPlace, ready: Ready, *, life: str | None = None
) -> tuple[Any, TapPlan]:
    """The actor, on the eval engines' node, and the trainers' plan; ConfigError if it does not start.

    `life` is the training's, where it goes on with another receiver: of the name that the trainers know.
    """
    import ray

    from live_eval.subscriber.ray_facade import RayFacade
    from live_eval.subscriber.ray_receiver import RayReceiver, RayReceiverConfig, start_ray_receiver

    updates = settings.updates
    assert updates is not None
    incarnation = life or uuid.uuid4().hex
    name = f"live-eval-receiver-{incarnation[:12]}"
    namespace = ray.get_runtime_context().namespace
    is_member = updates.transport == "nccl"
    run_dir = RunDir(ready.run_dir)
    mail_dir = (updates.mail_dir or run_dir.root / "transfer") if updates.transport == "disk" else None
    if mail_dir is not None:
        share_directory(mail_dir, reader=place.node_id, token=incarnation)
    config = RayReceiverConfig(
        store=run_dir.store,
        base=settings.base,
        max_bytes=ready.store_bytes,
        keep_newest=settings.keep_versions,
        service_socket=ready.service_socket,
        on_gpu=is_member and settings.engines.device != "cpu",
        mail_dir=mail_dir,
        delta_dir=run_dir.root / "delta" if updates.kind == "deltas" else None,
    )
    try:
        actor = start_ray_receiver(
            config,
            name=name,
            namespace=namespace,
            node_id=place.node_id,
            start_timeout_s=START_TIMEOUT_S,
            actor_class=RayFacade if is_member else RayReceiver,
            env=_one_gpu(ready) if config.on_gpu else None,
        )
    except TransportError as error:
        raise ConfigError(f"live eval does not start: {error}") from error
    return actor, TapPlan(
        kind=updates.kind,
        transport=updates.transport,
        receiver=name,
        namespace=namespace,
        run_id=ready.run_id,
        incarnation_id=incarnation,
        num_sources=updates.num_sources,
        staging_bytes=ready.staging_bytes,
        deadline_s=settings.sync_deadline_s,
        mail_dir=str(mail_dir or ""),
    )


def _one_gpu(ready: Ready) -> dict[str, str]:
    """The receiver shares the first eval GPU with its engine; Ray gives it none of its own."""
    return {
        "CUDA_VISIBLE_DEVICES": ready.gpus[0],
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
        "NCCL_CUMEM_ENABLE": "0",  # as slime's actors have it, and SGLang
    }
