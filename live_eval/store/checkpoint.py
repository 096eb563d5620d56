"""Checkpoints that a user names: is the directory a whole, loadable safetensors checkpoint?

Knows the Hugging Face layout (one file, or shards and an index) and how to recognise what it is
not. Invariant: what `check_complete` accepts an engine can load; what it refuses is refused with
the file at fault and what to do.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, NamedTuple

from live_eval.errors import CONVERT_IT, CorruptVersion
from live_eval.store.finite import first_nonfinite
from live_eval.tensor_files import MAX_HEADER_BYTES, FileHeader, read_header

INDEX_NAME = "model.safetensors.index.json"
CONFIG_NAME = "config.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


class CheckpointReport(NamedTuple):
    """A checkpoint that passed."""

    path: Path
    num_tensors: int
    num_bytes: int
    """Sum of the sizes of its safetensors files."""


def check_complete(path: str | Path, *, check_finite: bool = False) -> CheckpointReport:
    """Check that directory `path` is a whole safetensors checkpoint; CorruptVersion if not.

    Reads headers and the index; with `check_finite` also every byte, looking for NaN and infinity.
    """
    path = Path(path)
    try:
        read_config(path)
        headers = read_headers(path)
    except OSError as error:
        raise CorruptVersion(f"{path}: cannot be read ({error.strerror})") from error
    if check_finite:
        for name, header in headers.items():
            if bad := first_nonfinite(path / name, header):
                raise CorruptVersion(f"{path}: tensor {bad!r} in {name} holds NaN or infinity")
    return CheckpointReport(
        path=path,
        num_tensors=sum(len(header.slots) for header in headers.values()),
        num_bytes=sum(header.num_bytes for header in headers.values()),
    )


def read_headers(path: Path) -> dict[str, FileHeader]:
    """Headers of the checkpoint's files, each with the tensors that the index takes from it.

    CorruptVersion if a file is missing or damaged, if index and files disagree, if two files hold
    one tensor without an index that chooses, or if there is no tensor at all.
    """
    files, weight_map = _index(path)
    headers = {name: read_header(path / name) for name in files}
    if weight_map is not None:
        for tensor, name in weight_map.items():
            if tensor not in headers[name].slots:
                raise CorruptVersion(f"{path}: the index puts {tensor!r} into {name}, which does not hold it")
        headers = {
            name: FileHeader(
                {t: s for t, s in header.slots.items() if weight_map.get(t) == name}, header.num_bytes
            )
            for name, header in headers.items()
        }
    held: dict[str, str] = {}
    for name, header in headers.items():
        for tensor in header.slots:
            if tensor in held:
                raise CorruptVersion(
                    f"{path}: {tensor!r} is in {held[tensor]} and in {name}, without an index"
                )
            held[tensor] = name
    if not held:
        raise CorruptVersion(f"{path}: its safetensors files hold no tensor")
    return headers


def read_config(path: Path) -> dict[str, Any]:
    """config.json of the checkpoint; CorruptVersion if there is none or it is no JSON object."""
    if not path.is_dir():
        raise CorruptVersion(f"{path}: no such directory")
    _refuse_torch_dist(path)
    config = _read_json(path / CONFIG_NAME)
    if not isinstance(config, dict):
        raise CorruptVersion(f"{path}: config.json is not a JSON object")
    return config


def _index(path: Path) -> tuple[list[str], dict[str, str] | None]:
    """The safetensors files of the checkpoint, and tensor -> file where there is an index."""
    if (path / INDEX_NAME).exists():
        index = _read_json(path / INDEX_NAME)
        weight_map = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(weight_map, dict) or not weight_map:
            raise CorruptVersion(f"{path}: {INDEX_NAME} has no weight_map")
        names = sorted({str(name) for name in weight_map.values()})
        for name in names:
            if "/" in name or not (path / name).is_file():
                raise CorruptVersion(f"{path}: {INDEX_NAME} names {name}, which is not there")
        return names, {str(tensor): str(name) for tensor, name in weight_map.items()}
    names = sorted(entry.name for entry in path.glob("*.safetensors"))
    if names:
        return names, None
    pickles = sorted(entry.name for entry in path.iterdir() if entry.suffix in _PICKLES)
    if pickles:
        raise CorruptVersion(
            f"{path}: {pickles[0]} is a pickle, which can run code when it is loaded, so it is not read. "
            f"{CONVERT_IT}: AutoModelForCausalLM.from_pretrained(PATH).save_pretrained(DIR)"
        )
    raise CorruptVersion(f"{path}: there is no .safetensors file in it")


def _refuse_torch_dist(path: Path) -> None:
    marks = ("latest_checkpointed_iteration.txt", "common.pt", ".metadata")
    if any((path / mark).exists() for mark in marks) or next(path.glob("*.distcp"), None):
        raise CorruptVersion(
            f"{path}: this is a Megatron torch_dist checkpoint. {CONVERT_IT} with slime's tool: python "
            f"tools/convert_torch_dist_to_hf.py --input-dir {path} --output-dir DIR --origin-hf-dir MODEL"
        )


def _read_json(path: Path) -> Any:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_HEADER_BYTES:
            raise CorruptVersion(f"{path}: this is no file, or one of more than {MAX_HEADER_BYTES} bytes")
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise CorruptVersion(f"{path.parent}: {path.name} is not there") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptVersion(f"{path}: cannot be read as JSON ({error})") from error
