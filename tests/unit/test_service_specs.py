"""The engines that a service launches or attaches to and its schedule, from its settings alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from live_eval.config import EngineSettings, ServiceConfig, StoreSettings
from live_eval.coordinator.wiring import engine_specs
from live_eval.evaluation.datasets import EvalSetConfig
from live_eval.evaluation.job import RunLimits
from live_eval.evaluation.sampling import SamplingParams
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
    specs = engine_specs(replace(CONFIG, engines=EngineSettings(num_engines=3, tp_size=2)))
    assert [(spec.name, spec.first_gpu) for spec in specs] == [("eval-0", 0), ("eval-1", 2), ("eval-2", 4)]
    assert all(spec.url is None and spec.model_path == Path("base") for spec in specs)


def test_addresses_are_attached_to_and_nothing_is_launched() -> None:
    addresses = ("http://127.0.0.1:30000", "http://127.0.0.1:30001")
    specs = engine_specs(replace(CONFIG, engines=EngineSettings(num_engines=5, addresses=addresses)))
    assert tuple(spec.url for spec in specs) == addresses


def test_the_engines_may_have_an_environment_of_their_own() -> None:
    python = Path("/elsewhere/bin/python")
    (spec,) = engine_specs(replace(CONFIG, engines=EngineSettings(python=python)))
    assert spec.python == python


def test_datasets_say_their_order_cycle_and_time_themselves() -> None:
    def dataset(name: str, **settings: Any) -> EvalSetConfig:
        return EvalSetConfig(name=name, path=Path(f"{name}.jsonl"), **settings)

    config = replace(
        CONFIG,
        datasets=(dataset("a"), dataset("b", priority=1, eval_every=3), dataset("c", timeout_s=10.0)),
        scheduler=SchedulerConfig(datasets=("a", "b", "c"), interval=2),
        limits=RunLimits(timeout_s=60.0),
    )
    found = config.schedule
    assert (found.datasets, found.eval_every, found.interval) == (("b", "a", "c"), {"b": 3}, 2)
    assert list(found.job_timeouts) == ["c"] and found.job_timeouts["c"] > 10.0, "the run ends itself first"


def test_a_configuration_with_every_setting_of_a_dataset_is_read_back_as_it_was(tmp_path: Path) -> None:
    sampling = SamplingParams(temperature=0.5, stop=("X",), stop_token_ids=(7,), first_seed=3)
    dataset = EvalSetConfig(
        name="a", path=Path("a.parquet@[0:9]"), id_key=None, metadata_overrides={"rm_type": "f1", "x": [1]},
        apply_chat_template=True, apply_chat_template_kwargs={"enable_thinking": False}, sampling=sampling,
        reward="f1", min_samples=3, early_stop_remaining=2, early_stop_idle_s=1.5, eval_every=2, priority=-1,
    )  # fmt: skip
    config = replace(CONFIG, datasets=(dataset,))
    config.save(tmp_path / "config.json")
    assert ServiceConfig.load(tmp_path / "config.json").datasets == (dataset,)
