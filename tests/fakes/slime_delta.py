"""slime's delta updater and the files it writes: differences of bytes, zstd, a checksum a tensor.

`overwrite_encode` and `checksum` are slime.utils.disk_delta's; tests/slime proves it.
"""

from __future__ import annotations

import json
import shutil
import zlib
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import xxhash
import zstandard

Content = dict[str, np.ndarray]
"""Tensor name -> its bytes."""


def overwrite_encode(new: np.ndarray, changed_mask: np.ndarray) -> np.ndarray:
    pos = np.flatnonzero(changed_mask).astype("<u4")
    return np.concatenate([np.array([pos.size], "<u4").view(np.uint8), pos.view(np.uint8), new[changed_mask]])


def checksum(algorithm: str, buf: np.ndarray) -> str:
    if algorithm == "xxh3-128":
        return xxhash.xxh3_128_hexdigest(buf.tobytes())
    assert algorithm == "adler32"
    return f"{zlib.adler32(buf.tobytes()):08x}"


class UpdateWeightFromDiskDelta:
    """On one rank; `content` gives the weights of the trainer."""

    def __init__(
        self,
        delta_dir: Path,
        base: Content,
        content: Callable[[], Content],
        *,
        encoding: str = "xor",
        algorithm: str = "xxh3-128",
        hook: Callable[..., None] | None = None,
    ) -> None:
        self.args = Namespace(update_weight_disk_dir=str(delta_dir))
        self.delta_dir = str(delta_dir)
        self.delta_encoding = encoding
        self.checksum_algorithm = algorithm
        self.weight_version = 0
        self.rollout_engines: list[Any] = ["engine"]
        self._baseline_captured = False
        self._snapshot = base
        self._content = content
        self._post_write_hook = hook

    def update_weights(self) -> None:
        if not self._baseline_captured:
            shutil.rmtree(self.delta_dir, ignore_errors=True)
            Path(self.delta_dir).mkdir(parents=True)
            if self._post_write_hook is not None:
                self._post_write_hook(self.args, self.delta_dir, list(self.rollout_engines))
            self._baseline_captured = True
            return
        self.weight_version += 1
        version_dir = Path(self.delta_dir) / f"weight_v{self.weight_version:06d}"
        version_dir.mkdir()
        self._publish(version_dir)
        if self._post_write_hook is not None:
            self._post_write_hook(self.args, str(version_dir), list(self.rollout_engines))

    def _publish(self, version_dir: Path) -> None:
        delta: Content = {}
        checksums: dict[str, str] = {}
        for name, new in self._content().items():
            old, self._snapshot[name] = self._snapshot[name], new
            if (new == old).all():
                continue
            diff = new ^ old if self.delta_encoding == "xor" else overwrite_encode(new, new != old)
            compressed = zstandard.ZstdCompressor(level=1).compress(diff.tobytes())
            delta[name] = np.frombuffer(compressed, dtype=np.uint8)
            checksums[name] = checksum(self.checksum_algorithm, new)
        name = "model-00000-of-00001.safetensors"
        if delta:
            (version_dir / name).write_bytes(safetensors.numpy.save(delta, metadata=checksums))
        index = {
            "metadata": {
                "version": f"{self.weight_version:06d}",
                "base_version": f"{self.weight_version - 1:06d}",
                "delta_encoding": self.delta_encoding,
                "compression_format": "zstd",
                "checksum_format": self.checksum_algorithm,
            },
            "weight_map": dict.fromkeys(delta, name),
        }
        (version_dir / "model.safetensors.index.json").write_text(json.dumps(index))
