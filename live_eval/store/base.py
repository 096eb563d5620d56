"""The base checkpoint: what the model looks like before any sync, and so what a sync must carry.

Reads headers, config.json and the names of side files; never a tensor's bytes, except to copy the
tensors that no sync carries. Invariant: every name in `expected()` has a known dtype and shape,
and a sync that carries exactly those is a whole model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from live_eval.digests import tensor_digest
from live_eval.errors import CorruptVersion
from live_eval.store.checkpoint import read_config, read_headers
from live_eval.tensor_files import TensorSlot, read_chunks
from protocol.messages import TensorMeta

MAX_SIDE_FILE_BYTES = 64 << 20
"""Larger files beside the weights are no part of what an engine needs to load a version."""
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".onnx")
_WEIGHT_INDEX_SUFFIX = ".index.json"
HEAD_SUFFIX = "lm_head.weight"
EMBEDDING_SUFFIX = "embed_tokens.weight"
SCALE_SUFFIXES = ("_scale_inv", "_scale")


@dataclass(frozen=True, kw_only=True)
class BaseCheckpoint:
    """A Hugging Face checkpoint directory, described.

    Build it with `BaseCheckpoint.read`. Not slotted: its two derived tables are computed once.
    """

    path: Path
    config: dict[str, Any]
    slots: dict[str, TensorSlot]
    """Every tensor of the files, with its place."""
    files: dict[str, str]
    """Tensor name -> file name."""
    side_files: tuple[str, ...]
    """Names of config, tokenizer and other small files that make a directory loadable."""
    side_bytes: int = 0
    """Their sizes together."""
    allowed_absent: tuple[str, ...] = ()
    """Shell patterns (fnmatch) of tensors that a sync need not carry, for example `model.mtp.*`."""

    @property
    def version_bytes(self) -> int:
        """About what one version of this model takes in a store."""
        return self.side_bytes + sum(slot.meta.num_bytes for slot in self.slots.values())

    @classmethod
    def read(cls, path: str | Path, *, allowed_absent: Sequence[str] = ()) -> BaseCheckpoint:
        """Describe the checkpoint in directory `path`.

        CorruptVersion if it is no whole safetensors checkpoint: the message says what is missing
        or how to convert it.
        """
        path = Path(path).absolute()
        config = read_config(path)
        slots: dict[str, TensorSlot] = {}
        files: dict[str, str] = {}
        for name, header in read_headers(path).items():
            for tensor, slot in header.slots.items():
                slots[tensor] = slot
                files[tensor] = name
        side_files = _side_files(path)
        base = cls(
            path=path,
            config=config,
            slots=slots,
            files=files,
            side_files=side_files,
            side_bytes=sum((path / name).stat().st_size for name in side_files),
            allowed_absent=tuple(allowed_absent),
        )
        if base.tied is False and base.embedding and not base.heads:
            raise CorruptVersion(
                f"{path}: config.json says tie_word_embeddings is false, but no tensor is *{HEAD_SUFFIX}"
            )
        return base

    @cached_property
    def tensors(self) -> dict[str, TensorMeta]:
        """Name -> dtype and shape of every tensor in the files."""
        return {name: slot.meta for name, slot in self.slots.items()}

    @cached_property
    def tied(self) -> bool | None:
        """Whether the output head is the embedding; None if the config does not say."""
        for config in (self.config, self.config.get("text_config")):
            if isinstance(config, dict) and isinstance(config.get("tie_word_embeddings"), bool):
                return config["tie_word_embeddings"]
        return None

    @cached_property
    def embedding(self) -> str:
        """Name of the token embedding, or empty where this model calls it something else."""
        return next((name for name in sorted(self.slots) if name.endswith(EMBEDDING_SUFFIX)), "")

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """Names of output heads in the files."""
        return tuple(name for name in sorted(self.slots) if name.endswith(HEAD_SUFFIX))

    @cached_property
    def tied_pair(self) -> tuple[str, str] | None:
        """(head, embedding) if they are one tensor: the head may stay away, or must be equal."""
        if not self.embedding or not (self.tied or (self.tied is None and not self.heads)):
            return None
        if self.heads:
            return self.heads[0], self.embedding
        wrapped = self.embedding.startswith("language_model.")
        return ("language_model." if wrapped else "") + HEAD_SUFFIX, self.embedding

    def expected(self) -> dict[str, TensorMeta]:
        """What every sync must carry: all tensors, less those that may be absent."""
        return {name: meta for name, meta in self.tensors.items() if name not in self._optional}

    def optional(self) -> dict[str, TensorMeta]:
        """What a sync may carry besides: the tied output head and what `allowed_absent` names."""
        return dict(self._optional)

    def known(self) -> dict[str, TensorMeta]:
        """Everything that a sync may carry: `expected()` and `optional()`."""
        return self.tensors | self._optional

    @cached_property
    def _optional(self) -> dict[str, TensorMeta]:
        tensors = self.tensors
        optional = {
            name: meta
            for name, meta in tensors.items()
            if any(fnmatchcase(name, pattern) for pattern in self.allowed_absent)
        }
        if self.tied_pair:
            head, embedding = self.tied_pair
            like = tensors[embedding]
            optional[head] = tensors.get(head, TensorMeta(head, like.dtype, like.shape))
        return optional

    def from_base(self, sent: Iterable[str]) -> list[str]:
        """Names that a sync of `sent` leaves to the base checkpoint, in order; never a tied head.

        The base's head is the embedding as it was before training, so it must not come back.
        """
        carried = set(sent)
        head = self.tied_pair[0] if self.tied_pair else ""
        return sorted(name for name in self._optional if name not in carried and name != head)

    def companions(self, name: str) -> tuple[str, ...]:
        """Names of the scales without which the quantized tensor `name` means nothing."""
        return tuple(name + suffix for suffix in SCALE_SUFFIXES if name + suffix in self.slots)

    def copy_tensor(self, name: str, into: np.ndarray) -> None:
        """Read one tensor of the base into a uint8 array of its size; CorruptVersion if it is not there."""
        slot = self.slots[name]
        done = 0
        with FileIO(self.path / self.files[name]) as file:
            for chunk in read_chunks(file, slot):
                into[done : done + chunk.size] = chunk
                done += chunk.size

    def digest(self, name: str) -> str:
        """Digest of one tensor of the base; read once, since the tensors that need it never change."""
        if name not in self._read_digests:
            data = np.empty(self.slots[name].meta.num_bytes, dtype=np.uint8)
            self.copy_tensor(name, into=data)
            self._read_digests[name] = tensor_digest(data)
        return self._read_digests[name]

    @cached_property
    def _read_digests(self) -> dict[str, str]:
        return {}

    @cached_property
    def side_digests(self) -> dict[str, str]:
        """Digest of each side file, as it was when this was first asked for."""
        return {name: tensor_digest((self.path / name).read_bytes()) for name in self.side_files}


def _side_files(path: Path) -> tuple[str, ...]:
    return tuple(
        sorted(
            entry.name
            for entry in path.iterdir()
            if entry.is_file()
            and not entry.name.startswith(".")
            and not entry.name.endswith((*_WEIGHT_SUFFIXES, _WEIGHT_INDEX_SUFFIX))
            and entry.name != "manifest.json"
            and entry.stat().st_size <= MAX_SIDE_FILE_BYTES
        )
    )
