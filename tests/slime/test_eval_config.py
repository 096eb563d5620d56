"""Effective values of eval configurations, field by field, against slime's own code."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
from fakes.slime_values import CASES, DATA, TABLE, slime_datasets, table

from live_eval.evaluation.eval_options import DEFAULTS
from live_eval.evaluation.eval_settings import DatasetSettings, read_eval_config


def ours(path: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    return [asdict(each) for each in read_eval_config(path, options).datasets]


@pytest.mark.parametrize("name", CASES)
def test_ours_are_slimes(slime_dir: Path, name: str) -> None:
    path = DATA / f"{name}.yaml"
    assert ours(path, CASES[name]) == slime_datasets(slime_dir, path, CASES[name])


def test_every_example_of_the_checkout_gives_the_same_values(slime_dir: Path) -> None:
    examples = [
        path
        for path in sorted(slime_dir.glob("examples/**/*.yaml"))
        if re.search(r"^eval:", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert examples
    for path in examples:
        for options in ({}, *CASES.values()):
            assert ours(path, options) == slime_datasets(slime_dir, path, options), path


def test_the_frozen_table_is_what_slime_makes_of_it_today(slime_dir: Path) -> None:
    assert json.loads(TABLE.read_text(encoding="utf-8")) == json.loads(json.dumps(table(slime_dir)))


def test_slime_has_no_field_that_we_do_not_know(slime_dir: Path) -> None:
    (first, *_) = slime_datasets(slime_dir, DATA / "everything.yaml", {})
    assert set(first) == {each.name for each in fields(DatasetSettings)}


def test_the_options_defaults_are_slimes(slime_dir: Path) -> None:
    source = (slime_dir / "slime/utils/arguments.py").read_text(encoding="utf-8")
    for name, ours in DEFAULTS.items():
        flag = f'"--{name.replace("_", "-")}"'
        assert flag in source, name
        call = source[source.index(flag) :]
        call = call[: call.index("parser.")] if "parser." in call else call
        if "store_true" in call:
            assert ours is False
        elif found := re.search(r"default=([^,\n)]+)", call):
            value = found[1].strip().strip('"')
            assert str({} if value == "{}" else ours) == value or (ours is None and value == "None"), name
