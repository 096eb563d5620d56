"""A job's sample file: JSON lines, one a sample, durable before the job's result exists.

Each sample is with the system as soon as it is appended, so a kill -9 of the service loses none;
a power failure may, before close().

Lines end with `\\n`, and no other character that some reader takes for a line end stands in
them as itself: U+0085, U+2028 and U+2029 are escaped, as are halves of surrogate pairs.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import fields
from io import FileIO
from pathlib import Path

from live_eval.errors import DatasetError
from live_eval.evaluation.sample import Sample

logger = logging.getLogger(__name__)

_ESCAPED = re.compile("[\x85\u2028\u2029\ud800-\udfff]")
_FIELDS = tuple(field.name for field in fields(Sample))


def encode_sample(sample: Sample) -> bytes:
    """One line, its `\\n` included."""
    record = {name: getattr(sample, name) for name in _FIELDS}
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    return _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode() + b"\n"


class SampleLog:
    """Writes one job's sample file."""

    def __init__(self, path: Path, taken_up: Sequence[Sample] = ()) -> None:
        """Make the folder and a file of the samples that an earlier attempt made, in place of what
        is there; OSError if that fails. The file is whole, or not there, whenever a kill comes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        begun = partial_of(path) if taken_up else path
        self._file: FileIO = begun.open("wb", buffering=0)
        try:
            self._write(b"".join(map(encode_sample, taken_up)))
            if taken_up:
                begun.replace(path)
        except BaseException:
            self._file.close()
            raise

    def append(self, sample: Sample) -> None:
        """Write one sample; a power failure may lose it before close(). OSError as the file system says."""
        self._write(encode_sample(sample))

    def close(self) -> None:
        """Put all samples and the file's name on the disk, and close. OSError if the disk refuses."""
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        for folder in (self._path.parent, self._path.parent.parent):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # a disk that fills takes less than it is given, and says why only when asked again
            view = view[self._file.write(view) :]


def partial_of(path: Path) -> Path:
    """What the file is called until it is whole."""
    return path.with_name(f".{path.name}.partial")


def read_samples(path: Path) -> list[Sample]:
    """All whole samples of a file; a last line without its end, left by a crash, is dropped.

    Fields that are not known here are ignored. DatasetError names file and line of a bad line.
    """
    *lines, tail = path.read_bytes().split(b"\n")
    if tail:
        logger.warning("%s: the last line was not written to its end and is dropped", path)
    samples = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line.decode("utf-8"))
            samples.append(Sample(**{name: value for name, value in record.items() if name in _FIELDS}))
        except (ValueError, TypeError, AttributeError) as error:
            raise DatasetError(f"{path}:{number}: not a sample: {error}") from error
    return samples
