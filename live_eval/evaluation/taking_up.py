"""Which samples of a job's earlier attempts stand, so that the next attempt does not ask for them again.

A service that was killed leaves the sample file of the attempt that it was in; so does an attempt
whose engines were lost. Knows files and samples, not engines. Invariant: what is taken up was made
with the same weights, rows and settings, was answered by an engine that said so, and is there once.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Container, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.errors import DatasetError
from live_eval.evaluation.sample_log import partial_of, read_samples

if TYPE_CHECKING:
    from live_eval.evaluation.datasets import EvalSet
    from live_eval.evaluation.job import JobSpec
    from live_eval.evaluation.sample import Sample

logger = logging.getLogger(__name__)


def basis_of(spec: JobSpec, eval_set: EvalSet) -> str:
    """The name of what this attempt's samples are made with; empty where the weights are not known.

    A setting of the dataset that changed, or a row, gives another name, so that no score is a
    mixture of two ways to measure.
    """
    if not spec.weights:
        return ""
    parts = [spec.weights, spec.label, eval_set.description()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def taken_up(
    earlier: Iterable[Path], *, basis: str, label: str, expected: Container[tuple[str, int]]
) -> list[Sample]:
    """The samples of earlier attempts that stand, in the order in which they were made.

    `expected` has (row id, sample number). The one that was made first counts, where there are more.
    Files that were begun and never whole are removed.
    """
    found: dict[tuple[str, int], Sample] = {}
    for path in earlier:
        partial_of(path).unlink(missing_ok=True)
        for sample in _read(path) if basis else ():
            key = (sample.row_id, sample.sample)
            if sample.basis == basis and key in expected and _stands(sample, label):
                found.setdefault(key, sample)
    return list(found.values())


def _stands(sample: Sample, label: str) -> bool:
    """Whether asking again could only give another answer to a question that was answered."""
    if sample.status == "scored":
        return sample.engine_label == label
    if sample.status != "errored":
        return False
    # Refused by the engine, or answered and not to be graded. What was lost with an engine, or came
    # from other weights, has no answer that counts.
    refused = sample.finish_reason == "refused"
    return refused or (sample.finish_reason in ("stop", "length") and sample.engine_label == label)


def _read(path: Path) -> list[Sample]:
    try:
        return read_samples(path)
    except FileNotFoundError:
        return []
    except (DatasetError, OSError) as error:
        logger.warning("samples of an earlier attempt are asked again: %s", error)
        return []
