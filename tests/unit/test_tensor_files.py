"""A safetensors file is taken only if its header describes it to the byte."""

from __future__ import annotations

import json
import struct
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from fakes.checkpoints import ODD, finite_bytes
from safetensors.numpy import save_file

from live_eval.errors import CorruptVersion
from live_eval.tensor_files import build_header, layout, read_chunks, read_header
from protocol.dtypes import DTYPES
from protocol.messages import TensorMeta


def write(path: Path, table: dict[str, Any] | str, data: bytes = b"") -> Path:
    text = (table if isinstance(table, str) else json.dumps(table)).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def odd_file(path: Path) -> Path:
    metas = layout(ODD)
    header, _ = build_header(metas)
    path.write_bytes(header + b"".join(finite_bytes(meta, 1) for meta in metas))
    return path


def test_safetensors_reads_what_is_built_and_gets_the_same_bytes(tmp_path: Path) -> None:
    found = dict(safetensors.deserialize(odd_file(tmp_path / "x.safetensors").read_bytes()))
    assert found.keys() == {meta.name for meta in ODD}
    for meta in ODD:
        assert found[meta.name]["dtype"] == DTYPES[meta.dtype].safetensors
        assert found[meta.name]["shape"] == list(meta.shape)
        assert bytes(found[meta.name]["data"]) == finite_bytes(meta, 1)


def test_what_safetensors_writes_is_read(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "s": np.array(1.5),
        "b": np.ones(3, bool),
    }
    save_file(arrays, tmp_path / "x.safetensors")
    header = read_header(tmp_path / "x.safetensors")
    assert {name: (s.meta.dtype, s.meta.shape) for name, s in header.slots.items()} == {
        "a": ("float32", (2, 3)),
        "s": ("float64", ()),
        "b": ("bool", (3,)),
    }
    with FileIO(tmp_path / "x.safetensors") as file:
        assert b"".join(c.tobytes() for c in read_chunks(file, header.slots["a"])) == arrays["a"].tobytes()


def test_every_tensor_is_aligned_to_its_element(tmp_path: Path) -> None:
    for name, slot in read_header(odd_file(tmp_path / "x.safetensors")).slots.items():
        assert slot.begin % DTYPES[slot.meta.dtype].num_bytes == 0, name


@pytest.mark.parametrize("size", [0, 4, 40, 300, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    path = odd_file(tmp_path / "x.safetensors")
    data = path.read_bytes()
    path.write_bytes(data[:size])
    with pytest.raises(CorruptVersion):
        read_header(path)


def test_a_lengthened_file_is_refused(tmp_path: Path) -> None:
    path = odd_file(tmp_path / "x.safetensors")
    path.write_bytes(path.read_bytes() + b"..")
    with pytest.raises(CorruptVersion, match="announces"):
        read_header(path)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ('{"a": {}, "a": {}}', "twice"),
        ({"a": 3}, "malformed"),
        ({"a": {"dtype": "F32", "shape": [1]}}, "malformed"),
        ({"a": entry("F4", [8], 0, 4)}, "not supported"),
        ({"a": {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]}}, "not supported"),
        ({"a": entry("F32", [-1], 0, 4)}, "natural number"),
        ({"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}}, "natural number"),
        ({"a": entry("F32", [2], 0, 4)}, "has 4"),
        ({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 0, 4)}, "overlap"),
        ({"a": entry("F32", [1], 4, 8)}, "gap"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path: Path, table: Any, text: str) -> None:
    with pytest.raises(CorruptVersion, match=text):
        read_header(write(tmp_path / "x.safetensors", table, b"12345678"))


def test_a_file_that_is_not_there_is_corrupt_and_not_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(CorruptVersion, match="cannot be read"):
        read_header(tmp_path / "x.safetensors")


def test_a_file_that_shrinks_while_it_is_read_is_corrupt(tmp_path: Path) -> None:
    path = odd_file(tmp_path / "x.safetensors")
    slot = max(read_header(path).slots.values(), key=lambda slot: slot.end)
    path.write_bytes(path.read_bytes()[: slot.end - 1])
    with FileIO(path) as file, pytest.raises(CorruptVersion, match="ends inside"):
        list(read_chunks(file, slot))


def test_layout_keeps_the_given_order_within_one_element_size() -> None:
    metas = [TensorMeta(str(n), "bfloat16" if n % 2 else "float32", (1,)) for n in range(6)]
    assert [meta.name for meta in layout(metas)] == ["0", "2", "4", "1", "3", "5"]
