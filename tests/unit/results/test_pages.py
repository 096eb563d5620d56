"""Questions that the HTTP API asks of a ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from live_eval.reasons import JobStatus
from live_eval.results.pages import LedgerPages
from live_eval.targets import CheckpointTarget

if TYPE_CHECKING:
    from live_eval.results.ledger import Ledger
    from protocol.messages import JobResult


def test_newest_scores_are_of_the_highest_version_and_of_the_checkpoint_scored_last(
    ledger: Ledger, finish: Callable[..., JobResult]
) -> None:
    finish(10, score=0.75)
    finish(9, score=0.5)
    finish(11, status=JobStatus.FAILED)
    for number, score in ((1, 0.2), (3, 0.3), (2, 0.4)):
        finish(CheckpointTarget(path=f"/ckpt/{number}", number=number), score=score)
    finish(CheckpointTarget(path="/ckpt/4", number=4), status=JobStatus.CANCELLED)
    with LedgerPages.open_pages(ledger.path) as pages:
        (version,) = pages.newest_scores().values()
        (checkpoint,) = pages.newest_checkpoint_scores().values()
    assert (version.policy_version, version.score) == (10, 0.75)
    assert (checkpoint.checkpoint, checkpoint.score) == ("/ckpt/2", 0.4)
