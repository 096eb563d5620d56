"""The service's configuration that follows from a job's settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from live_eval.config import ServiceConfig
from slime_patch.drain import waiting_line
from slime_patch.service_actor import ServiceState
from slime_patch.service_plan import (
    LEAST_STORE_BYTES,
    OVERHEAD_BYTES,
    ServicePlan,
    limits,
    service_config,
    store_bytes,
)
from slime_patch.settings import Settings, settings_of

if TYPE_CHECKING:
    from fakes.slime_standins import Parse

LIVE = "--eval-mode latest-synced --eval-prompt-data toy toy.jsonl we/ird x.jsonl --eval-num-gpus 2 "


def settings(parse: Parse, line: str = "", **changes: object) -> Settings:
    found = settings_of(*parse(LIVE + line, **changes))
    assert found is not None
    return found


def config(parse: Parse, line: str = "", **changes: object) -> ServiceConfig:
    plan = ServicePlan(settings=settings(parse, line, **changes), run_dir=Path("/run"), slime_arguments={})
    return service_config(plan, run_id="r", model_bytes=100, data_dir=Path("/run/data"))


def test_policy_interval_and_bounds_are_the_users(parse: Parse) -> None:
    found = config(
        parse, "--eval-on-update cancel --eval-interval 3 --eval-drain-timeout-s 9 --eval-timeout-s 7"
    )
    scheduler = found.scheduler
    assert (scheduler.on_update, scheduler.interval, scheduler.drain_timeout_s) == ("cancel", 3, 9.0)
    assert (scheduler.job_timeout_s, found.limits.timeout_s) == (7.0, 7.0)


def test_datasets_are_slimes_files_or_what_was_prepared_for_slimes_function(parse: Parse) -> None:
    found = [(each.name, each.path.name) for each in config(parse).datasets]
    assert found == [("toy", "toy.jsonl"), ("we/ird", "x.jsonl")]
    found = [(each.name, each.path.name) for each in config(parse, "--eval-runner slime").datasets]
    assert found == [("toy", "eval-0.jsonl"), ("we/ird", "eval-1.jsonl")]


def test_the_store_is_as_large_as_the_model_asks_for_unless_told(parse: Parse) -> None:
    assert store_bytes(settings(parse, "--eval-keep-versions 3"), 10**10) == 7 * (10**10 + OVERHEAD_BYTES)
    assert store_bytes(settings(parse), 100) == LEAST_STORE_BYTES
    assert store_bytes(settings(parse, "--eval-store-max-gb 1.5"), 100) == 1_500_000_000


def test_concurrency_is_per_engine(parse: Parse) -> None:
    found = limits(settings(parse, "--eval-concurrency 100"))
    assert (found.chunk_size, found.num_in_flight) == (32, 6)
    assert limits(settings(parse, "--eval-concurrency 1")).num_in_flight == 2


@pytest.mark.parametrize(("word", "part"), [("all", "all"), ("fair", "fair"), ("2", 2)])
def test_checkpoints_share_the_engines_as_told(parse: Parse, word: str, part: int | str) -> None:
    found = config(parse, f"--eval-engines-per-eval {word}").schedule
    assert (found.engines_per_eval, found.num_engines) == (part, 2)


def test_engines_take_their_own_gpus(parse: Parse) -> None:
    found = config(parse, "--eval-num-gpus-per-engine 2")
    assert (found.engines.num_engines, found.engines.tp_size) == (1, 2)


def test_the_wait_for_engines_is_the_users(parse: Parse) -> None:
    assert config(parse, "--eval-engine-timeout-s 60").engines.usable_timeout_s == 60.0


def test_it_survives_its_file(parse: Parse, tmp_path: Path) -> None:
    found = config(parse, use_wandb=True, wandb_group="g", wandb_project="p")
    found.save(tmp_path / "config.json")
    assert ServiceConfig.load(tmp_path / "config.json") == found


def test_what_is_waited_for_is_said(parse: Parse) -> None:
    starting = ServiceState(phase="starting", engines=(("eval-0", "starting"),))
    assert waiting_line(starting) == "waiting for the eval engines to start (eval-0 is starting)"
    many = ServiceState(phase="draining", running=("v1/a",), waiting=tuple(f"v{n}/a" for n in range(2, 10)))
    assert waiting_line(many).endswith("v6/a and 3 more")
    assert waiting_line(ServiceState(phase="ending")).startswith("waiting for the service to write")
