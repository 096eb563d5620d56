"""Checkpoints that hold one byte, over and over: what is loaded before the weights that count.

SGLang answers success to a load that skipped a tensor, and its label proves nothing. So each pin
first loads a checkpoint of NaN, then the version: whatever the version's load did not replace is
still NaN, and no log-prob survives it. A second checkpoint, of zeros, is finite and therefore
safe to run a forward on: it tells an engine that ignores loads from two versions that are alike.

Knows safetensors files, not engines. Invariant: after a load of `nan_dir` every tensor listed in
`tensors` is NaN, whatever its float dtype, since 0xFF bytes are NaN in all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.tensor_files import build_header, layout

if TYPE_CHECKING:
    from protocol.messages import TensorMeta

logger = logging.getLogger(__name__)

MAX_BLANK_BYTES = 256 << 20
"""A small model is blanked whole; of a large one the small tensors (norms, biases), which are
enough to show that a load took effect."""
FILE_NAME = "model.safetensors"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class BlankWeights:
    """The two blank checkpoints of a model."""

    nan_dir: Path
    zero_dir: Path
    tensors: tuple[TensorMeta, ...]
    """What they hold, in the file's order."""
    whole: bool
    """Whether that is every float tensor of the model."""


def write_blank_weights(
    directory: Path, tensors: Iterable[TensorMeta], *, max_bytes: int = MAX_BLANK_BYTES
) -> BlankWeights:
    """Write both checkpoints under `directory`, over what an earlier run left there.

    Takes the float tensors among `tensors`, smallest first, as long as they fit into `max_bytes`.
    The zeros occupy no disk.
    """
    floats = sorted((t for t in tensors if "float" in t.dtype), key=lambda t: (t.num_bytes, t.name))
    chosen: list[TensorMeta] = []
    room = max_bytes
    for meta in floats:
        if meta.num_bytes > room:
            break
        room -= meta.num_bytes
        chosen.append(meta)
    order = tuple(layout(chosen))
    blank = BlankWeights(
        nan_dir=directory / "nan",
        zero_dir=directory / "zero",
        tensors=order,
        whole=len(order) == len(floats),
    )
    _write(blank.nan_dir / FILE_NAME, order, byte=b"\xff")
    _write(blank.zero_dir / FILE_NAME, order, byte=None)
    logger.info("blank weights: %d of %d float tensors in %s", len(order), len(floats), directory)
    return blank


def _write(path: Path, tensors: tuple[TensorMeta, ...], *, byte: bytes | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    prefix, header = build_header(tensors)
    with path.open("wb") as file:
        file.write(prefix)
        left = header.num_bytes - len(prefix)
        while byte is not None and left:
            left -= file.write(byte * min(left, CHUNK_BYTES))
        file.truncate(header.num_bytes)
