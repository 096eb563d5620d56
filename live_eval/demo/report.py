"""What happened in a demo run, as one JSON object, read back from what the run left on disk.

Owns the object's shape; asks the catalogue, the ledger and the trainer's records, and nobody else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_eval.reasons import JobStatus
from live_eval.results.reader import LedgerReader
from live_eval.store.catalogue import Catalogue
from live_eval.store.records import VersionState

if TYPE_CHECKING:
    from live_eval.rundir import RunDir
    from live_eval.store.records import VersionRecord
    from protocol.messages import JobResult


def engine_name() -> str:
    """`sglang` and its installed version."""
    return f"sglang {metadata.version('sglang')}"


def demo_report(run_dir: RunDir, *, wandb_dirs: Sequence[Path]) -> dict[str, Any]:
    """Versions, discarded syncs, evals, what syncs cost the trainer, and where the rest is."""
    catalogue = Catalogue.open(run_dir.catalogue)
    try:
        versions = catalogue.versions(VersionState.SEALED, VersionState.COLLECTED)
        discarded = catalogue.discarded()
    finally:
        catalogue.close()
    with LedgerReader.open_readonly(run_dir.ledger) as ledger:
        results = ledger.results()
    return {
        "engine": engine_name(),
        "versions": [_version(record) for record in versions],
        "discarded": [
            {
                "policy_version": record.policy_version,
                "weight_version": record.weight_version,
                "rollout_id": record.rollout_id,
                "train_step": record.train_step,
                "reason": record.reason,
                "detail": record.detail,
            }
            for record in discarded
        ],
        "evals": [_eval(result) for result in results],
        "trainer": trainer_records(run_dir),
        "results": _relative(run_dir.results_jsonl, run_dir),
        "wandb_dir": _relative(wandb_dirs[-1], run_dir) if wandb_dirs else None,
        "wandb_dirs": [_relative(path, run_dir) for path in wandb_dirs],
    }


def trainer_records(run_dir: RunDir) -> list[dict[str, Any]]:
    """One object a sync: what it was and what it cost the trainer; empty before the first."""
    path = run_dir.trainer_records
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _version(record: VersionRecord) -> dict[str, Any]:
    names = (
        "policy_version",
        "weight_version",
        "incarnation",
        "rollout_id",
        "train_step",
        "num_tensors",
        "num_bytes",
        "digest",
        "sealed_at",
    )
    return {name: getattr(record, name) for name in names}


def _eval(result: JobResult) -> dict[str, Any]:
    names = (
        "job_id",
        "policy_version",
        "dataset",
        "status",
        "reason",
        "score",
        "n_expected",
        "n_scored",
        "n_errored",
        "n_aborted",
        "train_step",
        "rollout_id",
        "started_at",
        "finished_at",
    )
    record: dict[str, Any] = {name: getattr(result, name) for name in names}
    record["checkpoint"] = result.checkpoint or None
    # An engine's label for a policy version is its number; a checkpoint's is a name.
    record["engine_versions"] = [int(each) if each.isdigit() else each for each in result.engine_versions]
    return record


def unfinished_jobs(run_dir: RunDir) -> list[str]:
    """Jobs without a terminal state, which a run that came to its end does not have."""
    with LedgerReader.open_readonly(run_dir.ledger) as ledger:
        return [row.job_id for row in ledger.unfinished()]


def num_scored(run_dir: RunDir) -> int:
    """Jobs that succeeded."""
    with LedgerReader.open_readonly(run_dir.ledger) as ledger:
        return ledger.totals().of(JobStatus.SUCCEEDED)


def _relative(path: Path, run_dir: RunDir) -> str:
    return str(path.relative_to(run_dir.root))
