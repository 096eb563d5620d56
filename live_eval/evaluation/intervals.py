"""95 % intervals of means over prompts, and of differences on the same prompts. Pure.

Samples of one prompt are no independent observations, so prompts are the clusters. Two methods:

    wilson   rewards that are all 0 or 1: Wilson's score interval (Wilson 1927), with the effective
             number of samples instead of their number: samples / design effect (Kish 1965), less
             where there are few prompts (Korn and Graubard 1998). The design effect compares the
             clustered variance with that of independent samples. Where all rewards are equal it cannot
             be seen; prompts are counted then.
    t        other rewards: mean plus and minus Student's t (prompts - 1 degrees of freedom) times the
             cluster-robust standard error (Miller 2024, "Adding Error Bars to Evals", arXiv:2411.00640)

and for differences

    bonett_price   rewards that are all 0 or 1: the adjusted Wald interval for paired proportions (Bonett
                   and Price 2012), which adds one prompt that got better and one that got worse
    paired_t       other rewards: Student's t over the prompts' differences (Miller 2024, section 4)

Invariant: no interval where there is nothing to see a spread by; never a point taken for certainty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

Z = NormalDist().inv_cdf(0.975)
_SERIES_FROM = 60
"""Degrees of freedom from which the expansion for t is exact to 1e-8."""

Method = Literal["wilson", "t", "bonett_price", "paired_t"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A mean with its interval."""

    mean: float
    low: float | None = None
    high: float | None = None
    """None where no interval can be given."""
    se: float | None = None
    """Standard error, clustered by prompt."""
    method: Method
    num_prompts: int
    effective: float | None = None
    """wilson: the effective number of samples."""


def estimate_mean(groups: Sequence[Sequence[float]]) -> Estimate | None:
    """The mean over all rewards, of which `groups` has those of each prompt; None without any."""
    clusters = [group for group in groups if group]
    rewards = [reward for group in clusters for reward in group]
    if not rewards:
        return None
    mean = math.fsum(rewards) / len(rewards)
    se = _clustered_se(clusters, mean)
    if is_binary(rewards):
        return _wilson(clusters, mean, se)
    if se is None or _is_rounding(se, rewards):
        return Estimate(mean=mean, method="t", num_prompts=len(clusters))
    half = student_t(len(clusters) - 1) * se
    return Estimate(
        mean=mean, low=mean - half, high=mean + half, se=se, method="t", num_prompts=len(clusters)
    )


def estimate_difference(differences: Sequence[float], *, binary: bool) -> Estimate | None:
    """The mean of the prompts' differences, None without any; `binary`: of rewards that are 0 or 1."""
    num = len(differences)
    if not num:
        return None
    mean = math.fsum(differences) / num
    method: Method = "bonett_price" if binary else "paired_t"
    spread = math.fsum((each - mean) ** 2 for each in differences)
    se = math.sqrt(spread / (num - 1) / num) if num > 1 else None
    if binary:
        centre = math.fsum(differences) / (num + 2)
        squares = (math.fsum(each * each for each in differences) + 2) / (num + 2)
        half = Z * math.sqrt((squares - centre * centre) / (num + 2))
        low, high = max(-1.0, centre - half), min(1.0, centre + half)
    elif se is not None and not _is_rounding(se, differences):
        half = student_t(num - 1) * se
        low, high = mean - half, mean + half
    else:
        return Estimate(mean=mean, method=method, num_prompts=num)
    return Estimate(mean=mean, low=low, high=high, se=se, method=method, num_prompts=num)


def _is_rounding(se: float, values: Sequence[float]) -> bool:
    """Whether all prompts say the same, so that there is no spread to see."""
    return se <= 1e-12 * max(map(abs, values))


def is_binary(rewards: Sequence[float]) -> bool:
    """Whether all are 0 or 1."""
    return all(reward in (0.0, 1.0) for reward in rewards)


def student_t(degrees: int) -> float:
    """The 97.5 % quantile of Student's t; ValueError below one degree of freedom."""
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom: one or more are needed")
    if degrees >= _SERIES_FROM:
        return _expanded_t(degrees)
    low, high = Z, 13.0
    for _ in range(60):
        middle = (low + high) / 2
        if _two_sided(middle, degrees) < 0.95:
            low = middle
        else:
            high = middle
    return high


def _expanded_t(degrees: int) -> float:
    """Abramowitz and Stegun 26.7.5."""
    z = Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / degrees**power for power, term in enumerate(terms, start=1))


def _two_sided(t: float, degrees: int) -> float:
    """Probability of |T| < t: finite sums for whole degrees of freedom (Abramowitz and Stegun 26.7.3-4)."""
    theta = math.atan(t / math.sqrt(degrees))
    cosine, sine = math.cos(theta), math.sin(theta)
    term = total = 1.0 if degrees % 2 == 0 else cosine
    for k in range(1 if degrees % 2 == 0 else 2, degrees - 1, 2):
        term *= k / (k + 1) * cosine * cosine
        total += term
    if degrees % 2 == 0:
        return sine * total
    return 2 / math.pi * (theta + (sine * total if degrees > 1 else 0.0))


def _clustered_se(clusters: Sequence[Sequence[float]], mean: float) -> float | None:
    num = len(clusters)
    if num < 2:
        return None
    size = sum(len(cluster) for cluster in clusters)
    squares = math.fsum((math.fsum(cluster) - mean * len(cluster)) ** 2 for cluster in clusters)
    return math.sqrt(num / (num - 1) * squares) / size


def _wilson(clusters: Sequence[Sequence[float]], mean: float, se: float | None) -> Estimate:
    effective = _effective(clusters, mean, se)
    z2 = Z * Z / effective
    centre = (mean + z2 / 2) / (1 + z2)
    half = Z / (1 + z2) * math.sqrt(mean * (1 - mean) / effective + z2 / (4 * effective))
    return Estimate(
        mean=mean,
        # Rounding must not put the mean outside: at 0 and at 1 a bound is the mean itself.
        low=min(mean, max(0.0, centre - half)),
        high=max(mean, min(1.0, centre + half)),
        se=se,
        method="wilson",
        num_prompts=len(clusters),
        effective=effective,
    )


def _effective(clusters: Sequence[Sequence[float]], mean: float, se: float | None) -> float:
    size = sum(len(cluster) for cluster in clusters)
    independent = mean * (1 - mean) / size
    if se is None or independent == 0.0 or size == len(clusters):
        return float(len(clusters))
    # A design effect of at least 1: by chance samples look more even than independence allows.
    effective = size / max(1.0, se * se / independent)
    # The design effect of few prompts is itself uncertain (Korn and Graubard 1998).
    return effective * (Z / student_t(len(clusters) - 1)) ** 2
