"""What Prometheus is told: read at each scrape from the ledger, the catalogue and the service's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from live_eval.http.figures import interval

if TYPE_CHECKING:
    from prometheus_client import Metric

    from live_eval.http.source import Source

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(source: Source, status: Mapping[str, Any], num_clients: int) -> bytes:
    """The text of /metrics; `status` is that of /status. Blocks as long as the databases take."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scrape(lambda: _families(source, status, num_clients)))
    return generate_latest(registry)


class _Scrape(Collector):
    """prometheus_client's way to ask for values instead of keeping them."""

    def __init__(self, families: Callable[[], Iterator[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """One scrape."""
        return self._families()


def _families(source: Source, status: Mapping[str, Any], num_clients: int) -> Iterator[Metric]:
    yield from _scores(source)
    for name, text, value in (
        ("stable_version", "Newest sealed policy version.", status["stable_version"]),
        ("stable_age_seconds", "Time since it was sealed.", status["stable_age_s"]),
        ("lag_versions", "Sealed versions newer than the newest scored one.", status["lag_versions"]),
        ("lag_seconds", "From the sealing of the newest scored version to the stable one.", status["lag_s"]),
        ("queue_depth", "Jobs that wait for the engines.", status["queue_depth"]),
        ("running_jobs", "Jobs of the evaluations that have engines.", len(status["running"])),
        ("store_bytes", "Bytes that versions and spare files take.", status["store"]["used_bytes"]),
        ("store_max_bytes", "The store's budget.", status["store"]["max_bytes"]),
        ("pins", "Claims on versions.", status["store"]["num_pins"]),
        ("event_clients", "Open event streams.", num_clients),
    ):
        if value is not None:
            yield GaugeMetricFamily(f"live_eval_{name}", text, value=value)
    yield _by_label("engines", "Engines by state.", "state", Counter(status["engines"].values()))
    yield _by_label("sink_rows_behind", "Rows that a sink has not taken.", "sink", status["sinks"])
    yield from _counters(source, status)


def _scores(source: Source) -> Iterator[Metric]:
    score = GaugeMetricFamily("live_eval_score", "Score of the newest scored version.", labels=["dataset"])
    low = GaugeMetricFamily("live_eval_score_low", "Lower end of its interval.", labels=["dataset"])
    high = GaugeMetricFamily("live_eval_score_high", "Upper end of its interval.", labels=["dataset"])
    share = GaugeMetricFamily(
        "live_eval_score_coverage", "Share of the expected samples that it is over.", labels=["dataset"]
    )
    number = GaugeMetricFamily("live_eval_scored_version", "The version it belongs to.", labels=["dataset"])
    for dataset, result in source.ledger.newest_scores().items():
        score.add_metric([dataset], result.score or 0.0)
        number.add_metric([dataset], result.policy_version or 0)
        if result.n_expected:
            share.add_metric([dataset], result.n_scored / result.n_expected)
        if bounds := interval(result.metrics, "score"):
            low.add_metric([dataset], bounds["low"])
            high.add_metric([dataset], bounds["high"])
    yield from (score, low, high, share, number)
    checkpoint = GaugeMetricFamily(
        "live_eval_checkpoint_score",
        "Score of the checkpoint that was scored last.",
        labels=["dataset", "checkpoint"],
    )
    for dataset, result in source.ledger.newest_checkpoint_scores().items():
        checkpoint.add_metric([dataset, result.checkpoint], result.score or 0.0)
    yield checkpoint


def _counters(source: Source, status: Mapping[str, Any]) -> Iterator[Metric]:
    jobs = CounterMetricFamily("live_eval_jobs", "Jobs that ended.", labels=["state", "reason"])
    for (state, reason), number in source.ledger.ends().items():
        jobs.add_metric([state, reason], number)
    yield jobs
    discarded = CounterMetricFamily(
        "live_eval_syncs_discarded", "Syncs that never became a version.", labels=["reason"]
    )
    for reason, number in status["discarded"].items():
        discarded.add_metric([reason], number)
    yield discarded
    sealed = sum(record.sealed_at is not None for record in source.store.records())
    yield CounterMetricFamily("live_eval_versions_sealed", "Syncs that became a version.", value=sealed)
    if status["held_s"] is not None:
        yield CounterMetricFamily(
            "live_eval_trainer_held_seconds", "Time for which syncs held the trainer.", value=status["held_s"]
        )


def _by_label(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"live_eval_{name}", text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
