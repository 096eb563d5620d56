"""Small checkpoints and syncs of every dtype, as raw bytes and without torch.

`Model` is the source of truth of a test: it writes a base checkpoint, and plays a publisher that
sends its tensors into a staged version.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from live_eval.store import BaseCheckpoint
from live_eval.tensor_files import build_header, layout
from protocol.messages import BucketHeader, SyncBegin, TensorMeta

if TYPE_CHECKING:
    from live_eval.store import Manifest, StagedVersion, VersionStore

EMBED = TensorMeta("model.embed_tokens.weight", "bfloat16", (16, 8))
NORM = TensorMeta("model.norm.weight", "float32", (8,))
PROJ = TensorMeta("model.layers.0.mlp.up_proj.weight", "float16", (8, 8))
HEAD = TensorMeta("lm_head.weight", "bfloat16", (16, 8))
PLAIN = (EMBED, PROJ, NORM, HEAD)

ODD = (
    *PLAIN,
    TensorMeta("odd.fp64", "float64", (3,)),
    TensorMeta("odd.e4m3", "float8_e4m3fn", (4, 4)),
    TensorMeta("odd.e4m3_scale_inv", "float32", (1, 1)),
    TensorMeta("odd.e5m2", "float8_e5m2", (5,)),
    TensorMeta("odd.int64", "int64", (3,)),
    TensorMeta("odd.int32", "int32", (3,)),
    TensorMeta("odd.int8", "int8", (7,)),
    TensorMeta("odd.uint8", "uint8", (9,)),
    TensorMeta("odd.bool", "bool", (5,)),
    TensorMeta("odd.scalar", "float32", ()),
    TensorMeta("odd.empty", "float16", (0, 4)),
)
"""Every kind of dtype, an odd number of odd bytes, a 0-d and an empty tensor."""


def finite_bytes(meta: TensorMeta, seed: int) -> bytes:
    """Bytes of the tensor that depend on name and seed and are finite (and 0 or 1) in any dtype."""
    rng = np.random.default_rng([seed, *meta.name.encode()])
    top = 2 if meta.dtype == "bool" else 60  # below every exponent of ones
    return rng.integers(0, top, meta.num_bytes, dtype=np.uint8).tobytes()


@dataclass(kw_only=True)
class Model:
    """Tensors with their bytes, of which a base checkpoint and any number of syncs are made."""

    metas: tuple[TensorMeta, ...] = PLAIN
    tied: bool | None = False
    seed: int = 0
    override: dict[str, bytes] = field(default_factory=dict)
    """Bytes of tensors that are not to come from the seed."""

    def data(self, name: str, seed: int | None = None) -> bytes:
        """The bytes of a tensor, in the version of this seed."""
        meta = next(meta for meta in self.metas if meta.name == name)
        return self.override.get(name, finite_bytes(meta, self.seed if seed is None else seed))

    def write(self, path: Path, *, num_files: int = 1) -> Path:
        """Write it as a Hugging Face checkpoint of `num_files` files."""
        path.mkdir(parents=True)
        names = [f"model-{n + 1:05d}-of-{num_files:05d}.safetensors" for n in range(num_files)]
        for number, name in enumerate(names):
            metas = layout(self.metas[number::num_files])
            header, _ = build_header(metas)
            (path / name).write_bytes(header + b"".join(self.data(meta.name) for meta in metas))
        if num_files > 1:
            places = {meta.name: names[n % num_files] for n, meta in enumerate(self.metas)}
            index = {"metadata": {}, "weight_map": places}
            (path / "model.safetensors.index.json").write_text(json.dumps(index))
        config = {"architectures": ["Qwen2ForCausalLM"]}
        if self.tied is not None:
            config["tie_word_embeddings"] = self.tied  # type: ignore[assignment]
        (path / "config.json").write_text(json.dumps(config))
        (path / "tokenizer.json").write_text('{"model": {}}')
        return path

    def base(self, path: Path, *, allowed_absent: tuple[str, ...] = (), num_files: int = 1) -> BaseCheckpoint:
        """Write it and describe it."""
        return BaseCheckpoint.read(self.write(path, num_files=num_files), allowed_absent=allowed_absent)


def sync_begin(
    weight_version: int, *, incarnation: str = "life-1", rollout_id: int | None = None
) -> SyncBegin:
    """A begin of one source."""
    return SyncBegin(
        sync_id=f"{incarnation}/{weight_version}",
        run_id="run",
        incarnation_id=incarnation,
        weight_version=weight_version,
        sources=("pp_0",),
        rollout_id=rollout_id,
        train_step=weight_version * 10,
    )


def bucket(
    index: int, metas: Iterable[TensorMeta], *, source: str = "pp_0", weight_version: int = 1
) -> BucketHeader:
    """A bucket header; the store looks at its source, index and tensors."""
    return BucketHeader(
        sync_id="sync", source=source, index=index, weight_version=weight_version, tensors=tuple(metas)
    )


def fill(staged: StagedVersion, header: BucketHeader, data: Iterable[bytes]) -> list[str]:
    """Allocate a bucket, write these bytes into it, and say that it is filled."""
    for view, piece in zip(staged.allocate(header), data, strict=True):
        view[:] = np.frombuffer(piece, dtype=np.uint8)
    return staged.filled(header)


def send(
    staged: StagedVersion, model: Model, *, seed: int, without: tuple[str, ...] = (), bucket_size: int = 2
) -> None:
    """Send the model's tensors, as they are in the version of this seed, in buckets."""
    metas = [meta for meta in model.metas if meta.name not in without]
    for index in range(0, len(metas), bucket_size):
        part = metas[index : index + bucket_size]
        fill(staged, bucket(index // bucket_size, part), [model.data(meta.name, seed) for meta in part])


def seal(
    store: VersionStore,
    model: Model,
    weight_version: int,
    *,
    seed: int | None = None,
    incarnation: str = "life-1",
) -> Manifest:
    """One whole sync; its bytes follow from `seed`, by default the weight version."""
    staged = store.begin(sync_begin(weight_version, incarnation=incarnation))
    send(staged, model, seed=weight_version if seed is None else seed)
    return staged.seal()
