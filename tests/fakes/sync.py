"""A small model's sync as messages, for tests that play the publisher by hand."""

from __future__ import annotations

from live_eval.subscriber.expected import ExpectedTensors
from protocol.messages import BucketHeader, SourceDone, SyncBegin, SyncCommit, TensorMeta

EMBED = TensorMeta("model.embed_tokens.weight", "float32", (8, 4))
UP = TensorMeta("model.layers.0.mlp.up_proj.weight", "float32", (4, 4))
DOWN = TensorMeta("model.layers.0.mlp.down_proj.weight", "float32", (4, 4))
NORM = TensorMeta("model.norm.weight", "bfloat16", (4,))
HEAD = TensorMeta("lm_head.weight", "float32", (8, 4))

MODEL = (EMBED, UP, DOWN, NORM)


def expected_tensors(*, tied: bool = False) -> ExpectedTensors:
    """The model's four tensors; with `tied` an lm_head that a sync may carry or leave out."""
    required = {tensor.name: tensor for tensor in MODEL}
    if not tied:
        return ExpectedTensors(required=required)
    return ExpectedTensors(required=required, optional={HEAD.name: HEAD}, tied={HEAD.name: EMBED.name})


def begin(
    weight_version: int = 1, *, sources: tuple[str, ...] = ("pp_0",), incarnation: str = "life-1"
) -> SyncBegin:
    """A begin whose sync id follows from incarnation and weight version."""
    return SyncBegin(
        sync_id=f"{incarnation}/{weight_version}",
        run_id="run",
        incarnation_id=incarnation,
        weight_version=weight_version,
        sources=sources,
    )


def bucket(
    of: SyncBegin, index: int, *tensors: TensorMeta, source: str = "pp_0", weight_version: int | None = None
) -> BucketHeader:
    """The header of bucket `index` of `source`."""
    return BucketHeader(
        sync_id=of.sync_id,
        source=source,
        index=index,
        weight_version=of.weight_version if weight_version is None else weight_version,
        tensors=tensors,
    )


def done(
    of: SyncBegin, num_buckets: int, *, source: str = "pp_0", digests: dict[str, str] | None = None
) -> SourceDone:
    """The end of a source."""
    return SourceDone(sync_id=of.sync_id, source=source, num_buckets=num_buckets, digests=digests or {})


def commit(of: SyncBegin, weight_version: int | None = None) -> SyncCommit:
    """The commit of a sync."""
    return SyncCommit(
        sync_id=of.sync_id, weight_version=of.weight_version if weight_version is None else weight_version
    )
