"""What Prometheus is told, read back with its own parser."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
from fakes.checkpoints import sync_begin
from prometheus_client.parser import text_string_to_metric_families

from live_eval.http.gauges import render
from live_eval.reasons import DiscardReason
from protocol.messages import ServiceStatus

if TYPE_CHECKING:
    from fakes.http_bench import HttpBench

    from live_eval.http.source import Source


async def scrape(http: HttpBench) -> dict[tuple[str, ...], float]:
    """(name, label values...) -> value."""
    async with http.client() as client:
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return read(answer.text)


def read(text: str) -> dict[tuple[str, ...], float]:
    """The same of the text itself."""
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_scores_lag_queue_store_and_discards_are_told(http: HttpBench) -> None:
    http.bench.seal(1)
    async with http.life():
        await http.bench.until(lambda: len(http.bench.ends) == 2)
    http.bench.seal(2)
    http.bench.store.sync_refused(sync_begin(2), DiscardReason.BAD_WEIGHT_VERSION, "twice")
    found = await scrape(http)
    assert found["live_eval_score", "a"] == 1.0
    assert found["live_eval_scored_version", "b"] == 1
    assert found["live_eval_score_coverage", "a"] == 1.0
    assert found["live_eval_stable_version",] == 2
    assert found["live_eval_lag_versions",] == 1
    assert found["live_eval_lag_seconds",] > 0
    assert found["live_eval_stable_age_seconds",] >= 0
    assert found["live_eval_queue_depth",] == 0
    assert found["live_eval_jobs_total", "completed", "succeeded"] == 2
    assert found["live_eval_syncs_discarded_total", "bad_weight_version"] == 1
    assert found["live_eval_versions_sealed_total",] == 2
    assert found["live_eval_trainer_held_seconds_total",] == 0.75
    assert 0 < found["live_eval_store_bytes",] < found["live_eval_store_max_bytes",]
    assert found["live_eval_pins",] == 1


async def test_engines_by_state_sinks_that_are_behind_and_an_interval_are_told(http: HttpBench) -> None:
    http.bench.seal(1)
    async with http.life():
        await http.bench.until(lambda: len(http.bench.ends) == 2)
    source = http.api.source
    (result, _) = source.ledger.newest_scores().values()
    states = {"engines": {"e0": "pinned", "e1": "dead", "e2": "pinned"}, "sinks": {"wandb": 3}}
    status = source.status(ServiceStatus(state="serving"), last_event_id="") | states
    metrics = {"score/low": 0.25, "score/high": 0.75}
    partly = msgspec.structs.replace(result, n_expected=4, n_scored=3, metrics=metrics)
    checkpoint = msgspec.structs.replace(result, policy_version=None, checkpoint="/ckpt/2", score=0.5)
    known = SimpleNamespace(
        newest_scores=lambda: {"a": partly},
        newest_checkpoint_scores=lambda: {"a": checkpoint},
        ends=source.ledger.ends,
    )
    told = render(cast("Source", SimpleNamespace(ledger=known, store=source.store)), status, 0)
    found = read(told.decode())
    assert (found["live_eval_engines", "pinned"], found["live_eval_engines", "dead"]) == (2, 1)
    assert found["live_eval_sink_rows_behind", "wandb"] == 3
    assert (found["live_eval_score_low", "a"], found["live_eval_score_high", "a"]) == (0.25, 0.75)
    assert found["live_eval_score_coverage", "a"] == 0.75
    assert found["live_eval_checkpoint_score", "/ckpt/2", "a"] == 0.5


async def test_a_run_without_versions_has_what_there_is(http: HttpBench) -> None:
    found = await scrape(http)
    assert found["live_eval_queue_depth",] == 0
    assert ("live_eval_stable_version",) not in found
    assert ("live_eval_trainer_held_seconds_total",) not in found
