"""The demo's trainer process: rounds of training steps, and one sync after each.

A round is the demo's rollout id. Version 1 is the push before the first round; the sync
after round r carries weight version r + 2. What a sync cost the trainer is written to a
file line by line, so that nothing of it is lost if the process is killed.

    python -m live_eval.demo.trainer CONFIG.json
"""

from __future__ import annotations

import json
import logging
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from live_eval.demo.learner import Learner
from live_eval.demo.trainer_config import TrainerConfig
from live_eval.errors import TransportError
from live_eval.processes import end_with_parent
from live_eval.publisher.base import SyncReport, bucketize, tensor_meta
from live_eval.reasons import DiscardReason
from live_eval.rundir import RunDir

if TYPE_CHECKING:
    import torch

    from live_eval.publisher.base import Publisher

logger = logging.getLogger(__name__)

BUCKET_BYTES = 512 * 1024
"""Small enough that the demo's model needs several buckets a sync, as large models do."""
CLOSE_TIMEOUT_S = 60.0
"""For the last sync to be handed over when training has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncRecord:
    """What one sync was and what it cost the trainer."""

    weight_version: int
    rollout_id: int | None
    train_step: int
    held_s: float
    """Seconds that the sync held the training thread."""
    step_s: float
    """Mean seconds of a training step in the round before it; 0 for the first push."""
    loss: float | None
    published: bool
    reason: str
    ended_at: float


class Trainer:
    """Learner and publisher, and the loop over both."""

    def __init__(self, config: TrainerConfig, learner: Learner, publisher: Publisher) -> None:
        self._config = config
        self._learner = learner
        self._publisher = publisher

    def run(self) -> None:
        """Train all rounds; a sync that is given up is recorded and training goes on."""
        self._sync(1, rollout_id=None, step_s=0.0, loss=None)
        for rollout_id in range(self._config.num_versions - 1):
            began = time.monotonic()
            loss = 0.0
            for _ in range(self._config.steps_per_round):
                loss = self._learner.train_step()
            step_s = (time.monotonic() - began) / self._config.steps_per_round
            self._sync(rollout_id + 2, rollout_id=rollout_id, step_s=step_s, loss=loss)

    def _sync(
        self, weight_version: int, *, rollout_id: int | None, step_s: float, loss: float | None
    ) -> None:
        report = self._publish(weight_version, rollout_id)
        record = SyncRecord(
            weight_version=weight_version,
            rollout_id=rollout_id,
            train_step=self._learner.step,
            held_s=report.held_s,
            step_s=step_s,
            loss=loss,
            published=report.published,
            reason=report.reason,
            ended_at=time.time(),
        )
        with RunDir(Path(self._config.run_dir)).trainer_records.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(record)) + "\n")
        logger.info("sync of weight version %d: %s", weight_version, record)

    def _publish(self, weight_version: int, rollout_id: int | None) -> SyncReport:
        """One sync; with nccl a member that dies in the middle costs this version, not the training."""
        tensors = self._learner.named_tensors()
        publisher = self._publisher
        began = time.perf_counter()
        try:
            publisher.begin(
                weight_version,
                rollout_id=rollout_id,
                train_step=self._learner.step,
                num_bytes=sum(tensor.nbytes for _, tensor in tensors),
            )
            for bucket in bucketize(tensors, BUCKET_BYTES):
                publisher.put_bucket(bucket)
            return publisher.commit()
        except TransportError as error:
            logger.warning("the sync of weight version %d failed: %s", weight_version, error)
            return SyncReport(
                weight_version=weight_version,
                published=False,
                reason=DiscardReason.GROUP_FAILED,
                held_s=time.perf_counter() - began,
            )


def make_publisher(config: TrainerConfig, tensors: list[tuple[str, torch.Tensor]]) -> Publisher:
    """The publisher of the configured transport, connected to its receiver."""
    if config.transport == "ray":
        return _ray_publisher(config, tensors)
    return _collective_publisher(config)


def _ray_publisher(config: TrainerConfig, tensors: list[tuple[str, torch.Tensor]]) -> Publisher:
    import ray

    from live_eval.publisher.ray_link import RayLink
    from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher
    from live_eval.publisher.staging import staging_bytes

    ray.init(address=config.ray_address, namespace=config.ray_namespace, log_to_driver=False)
    return RayRefPublisher(
        RayLink(ray.get_actor(config.receiver)),
        RayPublisherConfig(
            run_id=config.run_id,
            slot_bytes=staging_bytes(tensor_meta(name, tensor) for name, tensor in tensors),
            bucket_bytes=BUCKET_BYTES,
            deadline_s=config.deadline_s,
        ),
    )


def _collective_publisher(config: TrainerConfig) -> Publisher:
    from live_eval.publisher.collective import CollectiveConfig, CollectivePublisher
    from live_eval.publisher.engines import FacadeEngine
    from live_eval.publisher.sglang_engine import SGLangEngine

    engines = [SGLangEngine(config.rollout_engine)] if config.rollout_engine else []
    # Engines share the trainer's cores here: one that is at work answers late.
    settings = CollectiveConfig(run_id=config.run_id, probe_timeout_s=config.deadline_s)
    return CollectivePublisher(settings, receiver=FacadeEngine(Path(config.receiver)), engines=engines)


def main(arguments: list[str]) -> int:
    """Train as the configuration file says."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    end_with_parent()
    config = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=TrainerConfig)
    num_steps = config.steps_per_round * (config.num_versions - 1)
    learner = Learner(Path(config.base), seed=config.seed, num_steps=num_steps)
    publisher = make_publisher(config, learner.named_tensors())
    try:
        Trainer(config, learner, publisher).run()
    finally:
        publisher.close(CLOSE_TIMEOUT_S)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
