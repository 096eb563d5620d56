"""A finished version against earlier ones: the version before it, and the best one so far.

Owns what is remembered of versions that later ones are compared with. Compares only what was measured
in the same way: results since the dataset's settings last changed, on the prompts that both scored.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.errors import DatasetError
from live_eval.evaluation.comparison import PromptScores, compare, comparison_metrics, prompt_scores
from live_eval.evaluation.sample_log import read_samples
from live_eval.reasons import JobStatus

if TYPE_CHECKING:
    from live_eval.evaluation.job import JobOutcomeDetail
    from live_eval.results.reader import LedgerReader

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Done:
    """One version's score on one dataset."""

    version: int
    score: float
    samples_path: str


class Comparisons:
    """Of one run; reads the ledger once and, for versions of an earlier life, sample files."""

    def __init__(self, ledger: LedgerReader) -> None:
        self._ledger = ledger
        self._done: dict[str, dict[int, _Done]] | None = None
        self._known: dict[str, dict[int, PromptScores]] = {}

    def metrics(self, dataset: str, version: int, detail: JobOutcomeDetail) -> dict[str, float]:
        """`vs_previous/...` and `vs_best/...` of a version that is about to be recorded as succeeded."""
        if self._done is None:
            self._done = self._read()
        others = self._done.setdefault(dataset, {})
        others.pop(version, None)
        before = [done for done in others.values() if done.version < version]
        previous = max(before, key=lambda done: done.version, default=None)
        # Of equal scores the first version is the best one.
        best = max(others.values(), key=lambda done: (done.score, -done.version), default=None)
        threshold = detail.pass_threshold
        scores = detail.prompt_scores or self._read_scores(version, detail.samples_path, threshold)
        kept = {version: scores} if scores else {}
        metrics: dict[str, float] = {}
        for name, other in (("vs_previous", previous), ("vs_best", best)):
            known = None if other is None else self._scores(dataset, other, threshold)
            if other is not None and known and scores:
                found = compare(known, scores)
                metrics |= comparison_metrics(name, found, version=other.version)
                kept[other.version] = known
        self._known[dataset] = kept
        if detail.score is not None:
            others[version] = _Done(version=version, score=detail.score, samples_path=detail.samples_path)
        return metrics

    def _read(self) -> dict[str, dict[int, _Done]]:
        """All scores of the datasets as they are now."""
        since = {name: descriptions[-1]["since"] for name, descriptions in self._ledger.datasets().items()}
        found: dict[str, dict[int, _Done]] = {}
        for result in self._ledger.results():
            version, score = result.policy_version, result.score
            if result.status != JobStatus.SUCCEEDED or version is None or score is None:
                continue
            if (result.started_at or 0.0) >= since.get(result.dataset, 0.0):
                done = _Done(version=version, score=score, samples_path=result.samples_path)
                found.setdefault(result.dataset, {})[version] = done
        return found

    def _scores(self, dataset: str, done: _Done, pass_threshold: float) -> PromptScores | None:
        known = self._known.get(dataset, {}).get(done.version)
        return known or self._read_scores(done.version, done.samples_path, pass_threshold)

    def _read_scores(self, version: int, path: str, pass_threshold: float) -> PromptScores | None:
        try:
            return prompt_scores(read_samples(Path(path)), pass_threshold=pass_threshold)
        except (OSError, DatasetError) as error:
            logger.warning("version %d is compared with nothing: %s", version, error)
            return None
