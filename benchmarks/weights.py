"""Weights as a trainer has them: 25 layers of a Qwen2, 300 tensors, in bf16 and fp32; or many equal ones.

Knows torch and the store's base checkpoint; not how weights travel. Invariant: after `change` no
tensor has the bytes that it had before, so that no file of a version can be linked to the one before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from live_eval.publisher.base import tensor_meta
from live_eval.tensor_files import build_header, layout

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from live_eval.publisher.base import NamedTensor

NUM_LAYERS = 25
_BYTES_A_LAYER_BY_WIDTH_SQUARED = 3 * 3 * 2 + 2.5 * 4  # MLP in bf16, attention in fp32
_WIDTH_STEP = 8
_BYTES_A_ROW = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Named tensors in memory that has been written to."""

    tensors: list[NamedTensor]

    @classmethod
    def make(cls, num_bytes: int) -> Weights:
        """300 random tensors of about `num_bytes` together."""
        width = math.sqrt(num_bytes / NUM_LAYERS / _BYTES_A_LAYER_BY_WIDTH_SQUARED)
        width = max(round(width / _WIDTH_STEP), 1) * _WIDTH_STEP
        generator = torch.Generator().manual_seed(0)
        tensors = [
            (name, torch.empty(shape, dtype=dtype).normal_(generator=generator))
            for name, shape, dtype in _layout(width)
        ]
        return cls(tensors=tensors)

    @classmethod
    def many(cls, num_tensors: int, num_bytes: int) -> Weights:
        """So many tensors of one shape in fp32, of about `num_bytes` together, each in memory of its own."""
        rows = max(num_bytes // num_tensors // _BYTES_A_ROW, 1)
        generator = torch.Generator().manual_seed(0)
        tensors = [
            (
                f"model.layers.{number // 1000}.mlp.experts.{number % 1000}.weight",
                torch.empty(rows, _BYTES_A_ROW // 4).normal_(generator=generator),
            )
            for number in range(num_tensors)
        ]
        return cls(tensors=tensors)

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for _, tensor in self.tensors)

    def change(self, version: int) -> None:
        """Give every tensor other bytes than in any other version below 2^8."""
        for _, tensor in self.tensors:
            tensor.view(-1)[0] = float(version)

    def arrays(self) -> list[np.ndarray]:
        """Each tensor's bytes, without a copy."""
        return [tensor.view(-1).view(torch.uint8).numpy() for _, tensor in self.tensors]

    def write_base(self, directory: Path) -> None:
        """Write the checkpoint that a receiver measures syncs by: headers, and holes in place of bytes."""
        directory.mkdir(parents=True)
        metas = [tensor_meta(name, tensor) for name, tensor in self.tensors]
        prefix, header = build_header(layout(metas))
        with (directory / "model.safetensors").open("wb") as file:
            file.write(prefix)
            file.truncate(header.num_bytes)
        config = {"architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": False}
        (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _layout(width: int) -> Iterator[tuple[str, tuple[int, ...], torch.dtype]]:
    """Name, shape and dtype of each tensor; `width` is the model's hidden size."""
    narrow = width // 4
    layer = {
        "self_attn.q_proj.weight": (width, width),
        "self_attn.q_proj.bias": (width,),
        "self_attn.k_proj.weight": (narrow, width),
        "self_attn.k_proj.bias": (narrow,),
        "self_attn.v_proj.weight": (narrow, width),
        "self_attn.v_proj.bias": (narrow,),
        "self_attn.o_proj.weight": (width, width),
        "mlp.gate_proj.weight": (3 * width, width),
        "mlp.up_proj.weight": (3 * width, width),
        "mlp.down_proj.weight": (width, 3 * width),
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
    }
    for number in range(NUM_LAYERS):
        for name, shape in layer.items():
            dtype = torch.bfloat16 if name.startswith("mlp.") else torch.float32
            yield f"model.layers.{number}.{name}", shape, dtype
