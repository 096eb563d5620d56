"""Whether a version on disk still is what its manifest says, byte for byte.

Reads every byte once: digest and NaN check on the same chunk, tensors shared out among threads, since
one thread reads a file at half of what memory allows or less. Knows nothing of the catalogue.
Invariant: a directory that passes holds exactly the tensors and files of its manifest.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

import xxhash

from live_eval.digests import tensor_digest
from live_eval.errors import CorruptVersion
from live_eval.store.finite import all_finite
from live_eval.store.manifest import MANIFEST_NAME, Manifest, TensorRecord
from live_eval.tensor_files import TensorSlot, read_chunks, read_header

NUM_THREADS = min(4, os.cpu_count() or 1)
"""More gain little: memory is the limit then."""
PARTS_A_THREAD = 4
"""So that no thread is left with the last large tensor alone for long."""

_Slot = tuple[Path, TensorSlot, TensorRecord]


def verify_directory(path: Path, manifest: Manifest, *, check_finite: bool = True) -> None:
    """Compare directory `path` with `manifest`; CorruptVersion names the first thing that is off.

    Checks the set of files, each header, names, dtypes, shapes, sizes, digests of tensors and side
    files, and, unless told otherwise, that no float tensor holds NaN or infinity.
    """
    try:
        _verify(path, manifest, check_finite)
    except OSError as error:
        raise CorruptVersion(f"{path}: cannot be read ({error})") from error


def _verify(path: Path, manifest: Manifest, check_finite: bool) -> None:
    by_file: dict[str, dict[str, TensorRecord]] = {}
    slots: list[_Slot] = []
    for tensor in manifest.tensors:
        by_file.setdefault(tensor.file, {})[tensor.name] = tensor
    _check_files(path, {*by_file, *manifest.side_files, MANIFEST_NAME})
    for name, digest in manifest.side_files.items():
        if tensor_digest((path / name).read_bytes()) != digest:
            raise CorruptVersion(f"{path / name}: its digest is not the manifest's")
    for name, tensors in by_file.items():
        header = read_header(path / name)
        if header.slots.keys() != tensors.keys():
            odd = sorted(header.slots.keys() ^ tensors.keys())[0]
            raise CorruptVersion(f"{path / name}: file and manifest disagree on having tensor {odd!r}")
        slots += [(path / name, slot, tensors[tensor_name]) for tensor_name, slot in header.slots.items()]
    with ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="verify") as threads:
        # In the files' order, so that of several faults the first is named.
        for _ in threads.map(lambda part: _check_tensors(part, check_finite), _parts(slots)):
            pass


def _check_files(path: Path, expected: set[str]) -> None:
    found = {entry.name for entry in path.iterdir()}
    if missing := sorted(expected - found):
        raise CorruptVersion(f"{path}: {missing[0]} is missing")
    if extra := sorted(found - expected):
        raise CorruptVersion(f"{path}: {extra[0]} does not belong there")


def _parts(slots: list[_Slot]) -> list[list[_Slot]]:
    """Neighbours in the files, of about the same bytes in each part; tensors are not divided."""
    num_bytes = sum(slot.end - slot.begin for _, slot, _ in slots)
    parts: list[list[_Slot]] = [[]]
    left = share = max(num_bytes / (PARTS_A_THREAD * NUM_THREADS), 1)
    for each in slots:
        if left <= 0:
            parts.append([])
            left += share
        parts[-1].append(each)
        left -= each[1].end - each[1].begin
    return parts


def _check_tensors(part: list[_Slot], check_finite: bool) -> None:
    for path, neighbours in itertools.groupby(part, key=lambda each: each[0]):
        with FileIO(path) as file:
            for _, slot, record in neighbours:
                _check_tensor(file, slot, record, check_finite)


def _check_tensor(file: FileIO, slot: TensorSlot, record: TensorRecord, check_finite: bool) -> None:
    if (slot.meta.dtype, slot.meta.shape) != (record.dtype, record.shape):
        raise CorruptVersion(
            f"{file.name}: {record.name!r} is {slot.meta.dtype}{list(slot.meta.shape)}, the manifest says "
            f"{record.dtype}{list(record.shape)}"
        )
    state = xxhash.xxh3_128()
    finite = True
    for chunk in read_chunks(file, slot):
        state.update(chunk.data)
        finite = finite and (not check_finite or all_finite(record.dtype, chunk))
    if state.hexdigest() != record.digest:
        raise CorruptVersion(f"{file.name}: the digest of {record.name!r} is not the manifest's")
    if not finite:
        raise CorruptVersion(f"{file.name}: {record.name!r} holds NaN or infinity")
