"""What Prometheus is told, read back with its own parser."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakes.checkpoints import sync_begin
from prometheus_client.parser import text_string_to_metric_families

from live_eval.reasons import DiscardReason

if TYPE_CHECKING:
    from fakes.http_bench import HttpBench


async def scrape(http: HttpBench) -> dict[tuple[str, ...], float]:
    """(name, label values...) -> value."""
    async with http.client() as client:
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in families
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


async def test_a_run_without_versions_has_what_there_is(http: HttpBench) -> None:
    found = await scrape(http)
    assert found["live_eval_queue_depth",] == 0
    assert ("live_eval_stable_version",) not in found
    assert ("live_eval_trainer_held_seconds_total",) not in found
