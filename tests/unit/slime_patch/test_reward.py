"""Rewards of slime for live-eval's samples, with a stand-in of slime's async_rm."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from live_eval.errors import ConfigError
from live_eval.evaluation.rewards import RewardSample
from slime_patch import reward
from slime_patch.datasets import DatasetPlan


@dataclass
class Sample:
    index: int
    prompt: str
    response: str
    response_length: int
    label: Any
    metadata: dict[str, Any] = field(default_factory=dict)
    custom_rm_path: str | None = None


async def async_rm(args: Namespace, sample: Sample, **named: Any) -> dict[str, Any]:
    """Answers with what it was given."""
    return {"args": args, "sample": sample}


@pytest.fixture(autouse=True)
def slime(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    modules = {
        name: ModuleType(name) for name in ("slime", "slime.rollout", "slime.rollout.rm_hub", "slime.utils")
    }
    modules["slime.utils.types"] = ModuleType("slime.utils.types")
    vars(modules["slime.rollout.rm_hub"])["async_rm"] = async_rm
    vars(modules["slime.utils.types"])["Sample"] = Sample
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    reward._arguments.cache_clear()
    yield
    reward._arguments.cache_clear()


def sample(dataset: str) -> RewardSample:
    return RewardSample(
        dataset=dataset, row_id="3", sample=1, prompt="p", response="r", label="l", num_tokens=2,
        metadata={"level": 5, "rm_type": "f1"},
    )  # fmt: skip


def plan(name: str, **changes: Any) -> DatasetPlan:
    return DatasetPlan(name=name, path="x", input_key="q", label_key="a", **changes)


async def test_a_sample_goes_through_slimes_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = Namespace(
        rm_type="math", rm_url="http://m", tensor=object(), wandb_key="secret", layers=[1, {"a": None}]
    )
    plans = [plan("a"), plan("b", custom_rm_path="my.rm")]
    file = tmp_path / "arguments.json"
    reward.write_arguments(file, reward.simple_arguments(args), plans)
    monkeypatch.setenv(reward.ARGUMENTS_ENV, str(file))
    first: Any = await reward.reward(sample("a"))
    assert vars(first["args"]) == {"rm_type": "math", "rm_url": "http://m", "layers": [1, {"a": None}]}
    assert first["sample"] == Sample(1, "p", "r", 2, "l", {"level": 5, "rm_type": "f1"}, None)
    second: Any = await reward.reward(sample("b"))
    assert second["sample"].custom_rm_path == "my.rm"
    assert file.stat().st_mode & 0o077 == 0


async def test_without_a_job_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(reward.ARGUMENTS_ENV, raising=False)
    with pytest.raises(ConfigError, match="are for evals of a slime job"):
        await reward.reward(sample("a"))
