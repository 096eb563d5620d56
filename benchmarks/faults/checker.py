"""Decides from sealed files alone whether a version is what it says. Shares no code with live-eval.

    torn         a tensor is missing, is not the model's, or its bytes are nobody's
    mixed        whole tensors of more than one version in one directory
    mislabelled  whole, of one version, and another than its manifest says; or one version twice

Reads safetensors, index and manifest by itself. Invariant: what it has found stays found.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.faults.model import SAFETENSORS_NAMES, TENSORS, Origin, content, stamped

TORN, MIXED, MISLABELLED = "torn", "mixed", "mislabelled"
BY_NAME = {tensor.name: tensor for tensor in TENSORS}


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that must never be."""

    kind: str
    version: str
    detail: str


class NotWhole(Exception):
    """A file that is not what its format says."""


@dataclass(slots=True)
class Checker:
    """Looks at each version below `versions` once."""

    versions: Path
    findings: list[Finding] = field(default_factory=list)
    seen: dict[int, Origin | None] = field(default_factory=dict)
    """Policy version -> whose weights it holds; None if that cannot be said."""
    _lives: dict[int, int] = field(default_factory=dict)
    """Number of an incarnation in manifests -> life of the trainer."""

    def look(self) -> None:
        """Check what has come since the last look."""
        try:
            names = sorted(entry.name for entry in self.versions.iterdir())
        except FileNotFoundError:
            return
        for name in names:
            number = int(name[1:]) if name[:1] == "v" and name[1:].isdigit() else None
            if number is None:
                self._found(TORN, name, "is no name of a version")
            elif number not in self.seen:
                self.seen[number] = None
                self._check(self.versions / name, number)

    def _check(self, path: Path, number: int) -> None:
        try:
            manifest = json.loads((path / "manifest.json").read_bytes())
            origins = dict(_origins(path, manifest))
        except (NotWhole, OSError, ValueError, KeyError, TypeError) as error:
            self._found(TORN, path.name, f"{type(error).__name__}: {error}")
            return
        if len(set(origins.values())) != 1:
            self._found(MIXED, path.name, str(sorted(set(origins.values()))))
            return
        origin = next(iter(origins.values()))
        twice = [other for other, known in self.seen.items() if known == origin]
        self.seen[number] = origin
        life = self._lives.setdefault(manifest["incarnation"], origin.life)
        if (manifest["weight_version"], manifest["policy_version"], life) != (
            origin.weight_version,
            number,
            origin.life,
        ):
            said = {key: manifest[key] for key in ("policy_version", "weight_version", "incarnation")}
            self._found(MISLABELLED, path.name, f"says {said}, holds {origin}")
        if len(set(self._lives.values())) != len(self._lives):
            self._found(MISLABELLED, path.name, f"one life of the trainer has two numbers: {self._lives}")
        if twice:
            self._found(MISLABELLED, path.name, f"{origin} is version {twice[0]} already")

    def _found(self, kind: str, version: str, detail: str) -> None:
        self.findings.append(Finding(kind=kind, version=version, detail=detail))


def _origins(path: Path, manifest: dict[str, Any]) -> Iterator[tuple[str, Origin]]:
    """Name -> whose bytes, for each tensor of the model; NotWhole if one is nobody's."""
    places = json.loads((path / "model.safetensors.index.json").read_bytes())["weight_map"]
    listed = {tensor["name"]: tensor["file"] for tensor in manifest["tensors"]}
    if places != listed or places.keys() != BY_NAME.keys():
        odd = sorted(places.keys() ^ BY_NAME.keys()) or "files"
        raise NotWhole(f"index, manifest and model differ: {odd}")
    for file in sorted(set(places.values())):
        for name, data in _read(path / file):
            if places.pop(name, None) != file:
                raise NotWhole(f"{name} is in {file}, where no one looks for it")
            origin = stamped(data)
            if data != content(origin, BY_NAME[name]):
                raise NotWhole(f"the bytes of {name} are nobody's; they say {origin}")
            yield name, origin
    if places:
        raise NotWhole(f"{sorted(places)} are in no file")


def _read(path: Path) -> Iterator[tuple[str, bytes]]:
    """The tensors of a safetensors file."""
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    body = memoryview(data)[8 + size :]
    if max(entry["data_offsets"][1] for entry in header.values()) != len(body):
        raise NotWhole(f"{path.name} is not as long as its header says")
    for name, entry in header.items():
        tensor = BY_NAME.get(name)
        if tensor is None:
            raise NotWhole(f"{name} is not in the model")
        begin, end = entry["data_offsets"]
        if (entry["dtype"], tuple(entry["shape"]), end - begin) != (
            SAFETENSORS_NAMES[tensor.dtype],
            tensor.shape,
            tensor.num_bytes,
        ):
            raise NotWhole(f"{name} is {entry}")
        yield name, bytes(body[begin:end])
