"""What a set of samples says: pure functions over samples, joined by (dataset, row_id, sample).

Metric names: `score` with `score/low`, `score/high`, `score/se` and `score/n_eff`, `avg@N` with
`avg@N/rows`, `pass@K`, `truncated`, `response_tokens` with `/median`, `/p95` and `/max`, and
`reward/KEY` with `reward/KEY/n` for each number that a reward function returned. A metric without data is
None.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING

from live_eval.evaluation.intervals import estimate_mean
from live_eval.evaluation.job import SampleCounts

if TYPE_CHECKING:
    from live_eval.evaluation.sample import Sample

_ANSWERED = ("stop", "length")


def count_samples(samples: Iterable[Sample], *, n_expected: int) -> SampleCounts:
    """The samples by status; what is expected and not there counts as aborted."""
    statuses = [sample.status for sample in samples]
    n_scored = statuses.count("scored")
    n_errored = statuses.count("errored")
    return SampleCounts(
        n_expected=n_expected,
        n_scored=n_scored,
        n_errored=n_errored,
        n_aborted=n_expected - n_scored - n_errored,
    )


def pass_at_k(num_samples: int, num_passed: int, k: int) -> float:
    """Unbiased estimate that at least one of k draws passes (Chen et al. 2021, arXiv:2107.03374).

    1 - C(n-c, k) / C(n, k), as a product so that nothing overflows. ValueError unless 1 <= k <= n.
    """
    if not 1 <= k <= num_samples or not 0 <= num_passed <= num_samples:
        raise ValueError(f"pass@{k} of {num_passed} passed in {num_samples}: 1 <= k <= n and 0 <= c <= n")
    if num_samples - num_passed < k:
        return 1.0
    all_fail = 1.0
    for i in range(num_samples - num_passed + 1, num_samples + 1):
        all_fail *= 1.0 - k / i
    return 1.0 - all_fail


def compute_metrics(
    samples: Sequence[Sample], *, n: int, pass_threshold: float = 1.0
) -> dict[str, float | None]:
    """All metrics of one dataset's samples, of which each row should have `n`.

    `score` is the mean over scored samples. `avg@n` and `pass@k`, for k = 1, 2, 4, ... up to n,
    are means over complete rows: those with all n samples scored, `avg@n/rows` of them. `truncated`
    (share that ended by length) and `response_tokens` are over all answered samples. ValueError if a
    sample is there twice.
    """
    scored = [sample for sample in samples if sample.status == "scored"]
    answered = [s for s in samples if s.status != "aborted" and s.finish_reason in _ANSWERED]
    groups = _complete_groups(samples, n)
    metrics: dict[str, float | None] = {
        **_score(scored),
        f"avg@{n}": _mean(sum(group) / n for group in groups),
        f"avg@{n}/rows": float(len(groups)) if groups else None,
    }
    k = 1
    while k <= n:
        metrics[f"pass@{k}"] = _mean(
            pass_at_k(n, sum(reward >= pass_threshold for reward in group), k) for group in groups
        )
        k *= 2
    metrics["truncated"] = _mean(float(sample.finish_reason == "length") for sample in answered)
    metrics |= _lengths([sample.num_tokens for sample in answered])
    for key in sorted({key for sample in scored for key in sample.rewards}):
        values = [sample.rewards[key] for sample in scored if key in sample.rewards]
        metrics[f"reward/{key}"] = _mean(values)
        metrics[f"reward/{key}/n"] = float(len(values))
    return metrics


def with_data(metrics: dict[str, float | None]) -> dict[str, float]:
    """The metrics that are not None."""
    return {name: value for name, value in metrics.items() if value is not None}


def _score(scored: Sequence[Sample]) -> dict[str, float | None]:
    """The mean reward with its interval, clustered by row."""
    rows: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample in scored:
        rows[sample.dataset, sample.row_id].append(_reward(sample))
    found = estimate_mean(list(rows.values()))
    if found is None:
        return {"score": None}
    return {
        "score": found.mean,
        "score/low": found.low,
        "score/high": found.high,
        "score/se": found.se,
        "score/n_eff": found.effective,
    }


def _lengths(tokens: Sequence[int]) -> dict[str, float | None]:
    """Mean, median, 95th percentile (the smallest length that 95 % do not exceed) and longest."""
    name, ordered = "response_tokens", sorted(tokens)
    if not ordered:
        return {name: None}
    return {
        name: sum(ordered) / len(ordered),
        f"{name}/median": float(median(ordered)),
        f"{name}/p95": float(ordered[math.ceil(0.95 * len(ordered)) - 1]),
        f"{name}/max": float(ordered[-1]),
    }


def _complete_groups(samples: Iterable[Sample], n: int) -> list[list[float]]:
    groups: dict[tuple[str, str], dict[int, float | None]] = defaultdict(dict)
    for sample in samples:
        group = groups[sample.dataset, sample.row_id]
        if sample.sample in group:
            raise ValueError(f"{sample.dataset}/{sample.row_id}/{sample.sample} is there twice")
        group[sample.sample] = _reward(sample) if sample.status == "scored" else None
    rewards = [[reward for reward in group.values() if reward is not None] for group in groups.values()]
    return [group for group in rewards if len(group) == n]


def _reward(sample: Sample) -> float:
    if sample.reward is None:
        raise ValueError(
            f"sample {sample.sample} of {sample.dataset}/{sample.row_id} is scored without a reward"
        )
    return sample.reward


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return sum(listed) / len(listed) if listed else None
