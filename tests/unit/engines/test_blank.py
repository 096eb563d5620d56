"""Blank weights: NaN in every float dtype, zeros that cost no disk, small tensors first."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from live_eval.engines.blank import FILE_NAME, write_blank_weights
from live_eval.store.finite import first_nonfinite
from live_eval.tensor_files import read_header
from protocol.dtypes import DTYPES
from protocol.messages import TensorMeta


def test_every_float_dtype_is_nan_and_the_rest_stays_away(tmp_path: Path) -> None:
    metas = [TensorMeta(f"w.{name}", name, (3, 5)) for name in DTYPES]
    blank = write_blank_weights(tmp_path, metas)
    assert {t.dtype for t in blank.tensors} == {name for name in DTYPES if "float" in name}
    assert blank.whole
    file = blank.nan_dir / FILE_NAME
    header = read_header(file)
    for name, slot in header.slots.items():
        alone = header._replace(slots={name: slot})
        assert first_nonfinite(file, alone) == name
        raw = np.fromfile(file, np.uint8)[slot.begin : slot.end]
        assert (raw == 0xFF).all()


def test_zeros_are_finite_and_sparse(tmp_path: Path) -> None:
    blank = write_blank_weights(tmp_path, [TensorMeta("big", "float32", (1 << 18,))])
    file = blank.zero_dir / FILE_NAME
    header = read_header(file)
    assert first_nonfinite(file, header) == ""
    assert file.stat().st_size == header.num_bytes > 1 << 20
    assert file.stat().st_blocks * 512 < 1 << 16


def test_of_a_large_model_the_small_tensors_are_taken(tmp_path: Path) -> None:
    metas = [TensorMeta("embed", "float32", (1000, 10)), TensorMeta("norm", "float32", (10,))]
    blank = write_blank_weights(tmp_path, metas, max_bytes=1000)
    assert [t.name for t in blank.tensors] == ["norm"]
    assert not blank.whole


def test_an_earlier_runs_files_are_replaced(tmp_path: Path) -> None:
    write_blank_weights(tmp_path, [TensorMeta("a", "float32", (9,))])
    blank = write_blank_weights(tmp_path, [TensorMeta("b", "float32", (2,))])
    assert set(read_header(blank.nan_dir / FILE_NAME).slots) == {"b"}
