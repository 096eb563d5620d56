"""The trainer process: a small model moves, a version is published, every so many seconds.

    python -m benchmarks.soak.trainer RUN_DIR RAY_ADDRESS RECEIVER MODEL_BYTES EVERY_S

Writes one line a sync: what its SyncMeter says, by which one sees what became of the versions.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.evals.model import EvalModel
from live_eval.processes import end_with_parent
from live_eval.publisher.base import bucketize, tensor_meta
from live_eval.publisher.meter import SyncMeter
from live_eval.rundir import RunDir

NAMESPACE = "soak"
BUCKET_BYTES = 1 << 20
"""Small enough that a small model needs several buckets, as a large one does."""
DEADLINE_S = 2.0


def main(arguments: list[str]) -> None:
    """Publish until ended."""
    end_with_parent()
    run_dir, address, receiver, num_bytes, every_s = arguments
    import ray
    import torch

    from live_eval.publisher.ray_link import RayLink
    from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher
    from live_eval.publisher.staging import staging_bytes

    torch.set_num_threads(1)
    ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    model, meter = EvalModel(int(num_bytes)), SyncMeter()
    tensors = model.tensors()
    publisher = RayRefPublisher(
        RayLink(ray.get_actor(receiver)),
        RayPublisherConfig(
            run_id="soak",
            slot_bytes=staging_bytes(tensor_meta(name, tensor) for name, tensor in tensors),
            bucket_bytes=BUCKET_BYTES,
            deadline_s=DEADLINE_S,
        ),
    )
    version, num_sealed = 0, 0
    with RunDir(Path(run_dir)).trainer_records.open("w", encoding="utf-8", buffering=1) as file:
        while True:
            began = time.monotonic()
            version += 1
            model.step()
            publisher.begin(version, rollout_id=version - 1, train_step=version)
            for bucket in bucketize(tensors, BUCKET_BYTES):
                publisher.put_bucket(bucket)
            meter.reported(publisher.commit())
            time.sleep(max(0.0, float(every_s) - (time.monotonic() - began)))
            for outcome in publisher.outcomes():
                num_sealed += outcome.state == "sealed"
                meter.ended(outcome)
            file.write(json.dumps({**meter.metrics(), "sealed": num_sealed}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
