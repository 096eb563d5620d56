"""The weights of a trainer that publishes only what has changed: the last state, and deltas applied to it.

    tip.bin      all tensors of the base checkpoint, one after the other, as the last delta left them
    tip.json     which trainer's life and which weight version that is, or why the chain is broken

A delta is what slime's disk updater writes: zstd-compressed `xor` or `overwrite` differences of bytes, a
checksum of each new tensor. Invariants: a delta is applied only to the version that it was made from, and
each new tensor has its checksum; a chain that broke stays broken until a life begins anew; a delta that a
killed process applied in part is applied to its end.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from live_eval.errors import ConfigError, CorruptVersion, LiveEvalError

if TYPE_CHECKING:
    from live_eval.mailbox import Entry
    from live_eval.store import BaseCheckpoint
    from protocol.messages import TensorMeta

CHECKSUMS = ("xxh3-128", "blake3", "adler32")
ENCODINGS = ("xor", "overwrite")


class BrokenChain(LiveEvalError):
    """No version can be made of this delta, nor of those after it."""

    code = "broken_chain"


@dataclass(slots=True)
class _State:
    life: str = ""
    version: int = 0
    broken: str = ""


class DeltaTip:
    """The last state, in a directory of its own on the local disk; used by one thread."""

    def __init__(self, directory: Path, base: BaseCheckpoint) -> None:
        """ConfigError where differences cannot be decompressed."""
        if importlib.util.find_spec("zstandard") is None:
            raise ConfigError(
                "deltas need the zstandard package, which slime's image has: pip install 'live-eval[delta]'"
            )
        self._directory = directory
        self._base = base
        self._places: dict[str, tuple[int, int]] = {}
        end = 0
        for name, meta in base.tensors.items():
            self._places[name] = (end, end := end + meta.num_bytes)
        self._num_bytes = end
        self._data: np.ndarray | None = None
        self._state = self._read_state()

    def apply(self, entry: Entry) -> None:
        """Bring the tip to the entry's version. BrokenChain if it cannot be, now and until a new life."""
        begin, delta = entry.begin, entry.delta
        assert begin is not None and delta is not None
        if begin.incarnation_id != self._state.life:
            try:
                self._begin_anew(begin.incarnation_id)
            except OSError as error:
                raise BrokenChain(f"the base cannot be copied to {self._directory}: {error}") from error
        if self._state.broken:
            raise BrokenChain(self._state.broken)
        if begin.weight_version <= self._state.version:
            return  # applied by a process that died before it could say so
        try:
            self._apply(entry, delta)
        except (BrokenChain, CorruptVersion, OSError, KeyError, ValueError) as error:
            detail = f"the chain of deltas broke at weight version {begin.weight_version}: {error}"
            self._state.broken = detail
            self._write_state()
            raise BrokenChain(detail) from error
        self._state.version = begin.weight_version
        self._write_state()

    def tensors(self) -> Iterable[TensorMeta]:
        """All tensors, in the order of the base checkpoint."""
        return self._base.tensors.values()

    def read(self, name: str) -> np.ndarray:
        """A tensor's bytes as they are now; not to be written to."""
        begin, end = self._places[name]
        return self._memory()[begin:end]

    # --- helpers --------------------------------------------------------------------------

    def _apply(self, entry: Entry, delta: dict[str, Any]) -> None:
        if (base := int(delta["base_version"])) != self._state.version:
            raise BrokenChain(
                f"it was made from version {base}, and the last one here is {self._state.version}"
            )
        if delta["delta_encoding"] not in ENCODINGS or delta["compression_format"] != "zstd":
            raise BrokenChain(f"{delta['delta_encoding']} in {delta['compression_format']} is not known")
        changed = set(delta["tensors"])
        for path in entry.files:
            for name, (diff, checksum) in read_delta(path).items():
                self._change(name, diff, checksum, delta)
                changed.discard(name)
        if changed:
            raise BrokenChain(
                f"{len(changed)} tensors of its index are in no file, {min(changed)!r} among them"
            )

    def _change(self, name: str, diff: np.ndarray, checksum: str, delta: dict[str, Any]) -> None:
        begin, end = self._places[name]
        place = self._memory()[begin:end]
        algorithm = delta["checksum_format"]
        if checksum_of(algorithm, place) == checksum:
            return
        new = decoded(diff, place, encoding=delta["delta_encoding"])
        if checksum_of(algorithm, new) != checksum:
            raise BrokenChain(f"{name!r} is not what the trainer has: its checksum differs")
        place[:] = new

    def _begin_anew(self, life: str) -> None:
        """A trainer's first delta is made from the base checkpoint."""
        memory = self._memory()
        self._state = _State()  # a copy that is cut short is begun anew
        self._write_state()
        for name, (begin, end) in self._places.items():
            self._base.copy_tensor(name, memory[begin:end])
        self._state = _State(life=life)
        self._write_state()

    def _memory(self) -> np.ndarray:
        if self._data is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._directory / "tip.bin", os.O_RDWR | os.O_CREAT, 0o644)
            try:
                os.posix_fallocate(descriptor, 0, max(self._num_bytes, 1))
                self._data = np.frombuffer(mmap.mmap(descriptor, max(self._num_bytes, 1)), dtype=np.uint8)
            finally:
                os.close(descriptor)
        return self._data

    def _read_state(self) -> _State:
        path = self._directory / "tip.json"
        return _State(**json.loads(path.read_text())) if path.exists() else _State()

    def _write_state(self) -> None:
        path = self._directory / "tip.json"
        new = path.with_suffix(".tmp")
        new.write_text(json.dumps(asdict(self._state)))
        new.replace(path)


def read_delta(path: Path) -> dict[str, tuple[np.ndarray, str]]:
    """Tensor name -> decompressed difference and checksum of the new bytes, from one file of a delta."""
    import zstandard

    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + length])
    checksums = table.pop("__metadata__", {})
    found: dict[str, tuple[np.ndarray, str]] = {}
    for name, place in table.items():
        begin, end = (8 + length + offset for offset in place["data_offsets"])
        try:
            raw = zstandard.ZstdDecompressor().decompress(data[begin:end])
        except zstandard.ZstdError as error:
            raise CorruptVersion(f"{path}: {name!r} cannot be decompressed: {error}") from error
        found[name] = (np.frombuffer(raw, dtype=np.uint8), checksums[name])
    return found


def decoded(diff: np.ndarray, old: np.ndarray, *, encoding: str) -> np.ndarray:
    """The new bytes. ValueError if the difference is not of this tensor."""
    if encoding == "xor":
        if diff.size != old.size:
            raise ValueError(f"a difference of {diff.size} bytes for a tensor of {old.size}")
        return diff ^ old
    count = int(diff[:4].view("<u4")[0])
    positions, values = diff[4 : 4 + 4 * count].view("<u4"), diff[4 + 4 * count :]
    if values.size != count or (count and int(positions.max()) >= old.size):
        raise ValueError(f"{count} changes do not fit a tensor of {old.size} bytes")
    new = old.copy()
    new[positions] = values
    return new


def checksum_of(algorithm: str, data: np.ndarray) -> str:
    """As slime computes it. ValueError for an algorithm that is not known here."""
    if algorithm == "xxh3-128":
        return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(data).data)
    if algorithm == "adler32":
        return f"{zlib.adler32(np.ascontiguousarray(data).data):08x}"
    if algorithm == "blake3":
        try:
            import blake3  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ValueError(
                "checksums by blake3 need the blake3 package, which slime's image has"
            ) from error
        return blake3.blake3(np.ascontiguousarray(data).data).hexdigest()
    raise ValueError(f"unknown checksum {algorithm!r}; known are {', '.join(CHECKSUMS)}")
