"""Writes the golden files of message types that have none yet; see README.md here."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from protocol.codec import TAGS, encode, tag_of
from protocol.messages import (
    PROTOCOL_VERSION,
    BucketHeader,
    BucketStored,
    CancelJob,
    EngineEvent,
    ErrorReply,
    GroupStatus,
    GroupStatusRequest,
    JobEvent,
    JobResult,
    JobsAccepted,
    JoinGroup,
    LeaveGroup,
    MemoryProbe,
    MemoryRange,
    MemoryReach,
    Message,
    Ok,
    ReceiveBucket,
    ServiceStatus,
    SourceDone,
    StatusRequest,
    StoreChanged,
    SubmitCheckpoint,
    Subscribe,
    SyncAbort,
    SyncAccepted,
    SyncBegin,
    SyncCommit,
    SyncGivenUp,
    SyncOutcome,
    TensorMeta,
    TrainingEnded,
)

DIRECTORY = Path(__file__).parent / f"v{PROTOCOL_VERSION}"

HEADER = BucketHeader(
    sync_id="life-2/7",
    source="pp_1",
    index=3,
    weight_version=7,
    tensors=(
        TensorMeta("model.layers.0.mlp.up_proj.weight", "bfloat16", (4864, 896)),
        TensorMeta("model.layers.0.mlp.up_proj.weight_scale_inv", "float32", (38, 7)),
        TensorMeta("model.layers.0.mlp.down_proj.weight", "float8_e4m3fn", (896, 4864)),
        TensorMeta("a.scalar", "int64", ()),
        TensorMeta("an.empty.one", "bool", (0, 70000)),
    ),
)
"""Covers fixarray and array 16, str 8, positive fixint to uint 32, and an empty array."""

SAMPLES: tuple[Message, ...] = (
    SyncBegin(
        sync_id="life-2/7",
        run_id="qwen-math",
        incarnation_id="life-2",
        weight_version=7,
        sources=("pp_0", "pp_1"),
        num_bytes=5_000_000_000,
        rollout_id=0,
        began_at=1764430000.25,
    ),
    HEADER,
    SourceDone(
        sync_id="life-2/7",
        source="pp_1",
        num_buckets=4,
        digests={"a.scalar": "99aa06d3014798d86001c324468d497f", "größe": "0" * 32},
    ),
    SyncCommit(sync_id="life-2/7", weight_version=7),
    SyncAbort(sync_id="life-2/7", reason="publisher_deadline", detail="no free slot within 2 s"),
    SyncGivenUp(
        sync_id="life-2/8",
        run_id="qwen-math",
        incarnation_id="life-2",
        weight_version=8,
        reason="publisher_deadline",
        detail="no free slot within 2 s",
        rollout_id=1,
        train_step=128,
    ),
    SyncAccepted(sync_id="life-2/7", policy_version=19),
    BucketStored(sync_id="life-2/7", source="pp_1", index=3),
    SyncOutcome(
        sync_id="life-2/7",
        weight_version=7,
        state="discarded",
        policy_version=19,
        reason="digest_mismatch",
        detail="1 tensors of pp_1 are not what it sent: a.scalar",
        num_tensors=290,
        num_bytes=5_000_000_000,
    ),
    JoinGroup(
        group_name="slime-pp_0",
        master_address="10.0.0.7",
        master_port=29511,
        rank=2,
        world_size=3,
        backend="nccl",
        timeout_s=30.0,
    ),
    LeaveGroup(group_name="slime-pp_0"),
    GroupStatusRequest(),
    GroupStatus(instance_id="5f0c", groups=("slime-pp_0", "slime-pp_1")),
    ReceiveBucket(header=HEADER, group_name="slime-pp_1"),
    MemoryProbe(pid=4711, address=140_737_000_000_016, mark="9f" * 16, payload=140_736_000_000_000),
    MemoryReach(pid=4712, reads=True),
    MemoryRange(pid=4711, address=140_736_000_000_000, num_bytes=67_108_864),
    Ok(),
    ErrorReply(code="store_full", message="no room", detail={"needed_bytes": "5000000000"}),
    StoreChanged(),
    TrainingEnded(),
    SubmitCheckpoint(path="/ckpt/step_200", datasets=("rev", "sum")),
    JobsAccepted(job_ids=("c1/rev", "c1/sum")),
    CancelJob(job_id="v19/rev"),
    StatusRequest(),
    Subscribe(),
    JobEvent(
        job_id="v19/rev",
        dataset="rev",
        status="succeeded",
        policy_version=19,
        reason="completed",
        num_done=64,
        num_expected=64,
        score=0.828125,
    ),
    EngineEvent(engine="engine-0", state="quarantined", detail="load failed"),
    ServiceStatus(
        state="serving",
        running=("v19/rev",),
        waiting=("v19/sum", "c1/rev"),
        stable_version=19,
        num_finished=36,
        engines={"engine-0": "pinned", "engine-1": "starting"},
    ),
    JobResult(
        result_id="v19/rev#1",
        job_id="v19/rev",
        dataset="rev",
        status="succeeded",
        reason="completed",
        policy_version=19,
        train_step=-1,
        rollout_id=18,
        weight_digest="ab" * 16,
        score=0.828125,
        detail="2 of 64 samples were not scored",
        partial={"mean": 0.5},
        metrics={"pass@1": 0.828125, "pass@4": 1.0, "avg_len": 17.1},
        n_expected=64,
        n_scored=62,
        n_errored=1,
        n_aborted=1,
        engine_versions=("19",),
        requested_at=1764430001.5,
        started_at=1764430002.0,
        finished_at=1764430011.125,
        samples_path="samples/v19_rev.jsonl",
    ),
)


def main() -> None:
    """Write the pairs that are missing, and say which."""
    DIRECTORY.mkdir(exist_ok=True)
    for message in SAMPLES:
        tag = tag_of(type(message))
        binary, readable = DIRECTORY / f"{tag}.bin", DIRECTORY / f"{tag}.json"
        if binary.exists() or readable.exists():
            continue
        envelope = {"v": PROTOCOL_VERSION, "t": tag, **msgspec.to_builtins(message)}
        binary.write_bytes(encode(message))
        readable.write_text(json.dumps(envelope, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"wrote {binary.name} and {readable.name}")
    missing = TAGS.keys() - {tag_of(type(message)) for message in SAMPLES}
    if missing:
        raise SystemExit(f"no sample here for {', '.join(sorted(missing))}: add one to SAMPLES")


if __name__ == "__main__":
    main()
