"""A checkpoint of four small tensors, written without torch: enough for everything but a real engine."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

from live_eval.tensor_files import build_header, layout
from protocol.messages import TensorMeta

VOCAB_SIZE = 64
SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (VOCAB_SIZE, 4),
    "model.layers.0.mlp.weight": (4, 4),
    "model.norm.weight": (4,),
    "lm_head.weight": (VOCAB_SIZE, 4),
}


def write_checkpoint(
    path: Path, *, seed: int, shapes: dict[str, tuple[int, ...]] | None = None, same: tuple[str, ...] = ()
) -> Path:
    """float32 tensors of random numbers that depend on the seed; those in `same` do not."""
    path.mkdir(parents=True, exist_ok=True)
    metas = layout([TensorMeta(n, "float32", s) for n, s in (shapes or SHAPES).items()])
    prefix, _ = build_header(metas)
    data = b""
    for meta in metas:
        numbers = random.Random(f"{0 if meta.name in same else seed} {meta.name}")
        count = meta.num_bytes // 4
        data += struct.pack(f"<{count}f", *(numbers.gauss(0, 1) for _ in range(count)))
    (path / "model.safetensors").write_bytes(prefix + data)
    config = {"dtype": "float32", "vocab_size": VOCAB_SIZE, "tie_word_embeddings": False}
    (path / "config.json").write_text(json.dumps(config))
    return path
