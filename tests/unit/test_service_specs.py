"""The engines that a service launches or attaches to, from its settings alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from live_eval.config import EngineSettings, ServiceConfig, StoreSettings
from live_eval.coordinator.wiring import engine_specs
from live_eval.evaluation.datasets import EvalSetConfig
from live_eval.scheduling.config import SchedulerConfig

CONFIG = ServiceConfig(
    run_id="run",
    run_dir=Path("run"),
    base=Path("base"),
    datasets=(EvalSetConfig(name="a", path=Path("a.jsonl")),),
    scheduler=SchedulerConfig(datasets=("a",)),
    store=StoreSettings(max_bytes=1),
)


def test_each_launched_engine_takes_the_next_gpus() -> None:
    specs = engine_specs(replace(CONFIG, engines=EngineSettings(num_engines=3, tp_size=2)), Path("base"))
    assert [(spec.name, spec.first_gpu) for spec in specs] == [("eval-0", 0), ("eval-1", 2), ("eval-2", 4)]
    assert all(spec.url is None and spec.model_path == Path("base") for spec in specs)


def test_addresses_are_attached_to_and_nothing_is_launched() -> None:
    addresses = ("http://127.0.0.1:30000", "http://127.0.0.1:30001")
    specs = engine_specs(
        replace(CONFIG, engines=EngineSettings(num_engines=5, addresses=addresses)), Path("base")
    )
    assert tuple(spec.url for spec in specs) == addresses


def test_the_engines_may_have_an_environment_of_their_own() -> None:
    python = Path("/elsewhere/bin/python")
    (spec,) = engine_specs(replace(CONFIG, engines=EngineSettings(python=python)), Path("base"))
    assert spec.python == python
