"""The model of the bench: what its tensors are, and their bytes in each version.

Bytes follow from (life of the trainer, weight version, tensor name) and nothing else. Each
tensor starts with a stamp that says which these are, so that whoever reads it can tell not only
that it is wrong but whose it is. Knows nothing of live-eval.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path

STAMP_BYTES = 16
_DIGITS = 64
_FINITE = bytes(value & 0x3F for value in range(256))
"""Six bits a byte: finite numbers in every dtype."""
SAFETENSORS_NAMES = {"float32": "F32", "bfloat16": "BF16"}
_ITEM_BYTES = {"float32": 4, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Size of its data."""
        size = _ITEM_BYTES[self.dtype]
        for dim in self.shape:
            size *= dim
        return size


def _layer(number: int) -> list[Tensor]:
    prefix = f"model.layers.{number}"
    return [
        Tensor(f"{prefix}.self_attn.q_proj.weight", "bfloat16", (64, 64)),
        Tensor(f"{prefix}.self_attn.k_proj.weight", "bfloat16", (64, 64)),
        Tensor(f"{prefix}.mlp.up_proj.weight", "float32", (64, 64)),
        Tensor(f"{prefix}.mlp.down_proj.weight", "float32", (64, 64)),
        Tensor(f"{prefix}.input_layernorm.weight", "bfloat16", (64,)),
    ]


BUCKETS: tuple[tuple[Tensor, ...], ...] = (
    (Tensor("model.embed_tokens.weight", "bfloat16", (128, 64)),),
    tuple(_layer(0)),
    tuple(_layer(1)),
    (
        Tensor("model.norm.weight", "bfloat16", (64,)),
        Tensor("lm_head.weight", "bfloat16", (128, 64)),
    ),
)
"""What a trainer hands over, one after the other."""
TENSORS: tuple[Tensor, ...] = tuple(tensor for bucket in BUCKETS for tensor in bucket)
NUM_BYTES = sum(tensor.num_bytes for tensor in TENSORS)


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Which weights a tensor's bytes are."""

    life: int
    weight_version: int


def content(origin: Origin, tensor: Tensor) -> bytes:
    """The bytes of a tensor in these weights."""
    seed = f"{origin.life}/{origin.weight_version}/{tensor.name}".encode()
    rest = hashlib.shake_128(seed).digest(tensor.num_bytes - STAMP_BYTES).translate(_FINITE)
    return _stamp(origin, tensor.name) + rest


def stamped(data: bytes) -> Origin:
    """Whose bytes these say they are."""
    return Origin(_number(data[:4]), _number(data[4:8]))


def _stamp(origin: Origin, name: str) -> bytes:
    own = hashlib.shake_128(name.encode()).digest(STAMP_BYTES - 8).translate(_FINITE)
    return _digits(origin.life) + _digits(origin.weight_version) + own


def _digits(number: int) -> bytes:
    return bytes(number // _DIGITS**power % _DIGITS for power in range(4))


def _number(digits: bytes) -> int:
    return sum(digit * _DIGITS**power for power, digit in enumerate(digits))


def incarnation_id(life: int) -> str:
    """The id of a life of the trainer."""
    return f"life-{life:06d}"


def write_base(path: Path) -> Path:
    """The model as a checkpoint, before any training."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": "bench", "tie_word_embeddings": False}))
    entries, data = {}, b""
    for tensor in TENSORS:
        piece = content(Origin(0, 0), tensor)
        entries[tensor.name] = {
            "dtype": SAFETENSORS_NAMES[tensor.dtype],
            "shape": tensor.shape,
            "data_offsets": [len(data), len(data) + len(piece)],
        }
        data += piece
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path
