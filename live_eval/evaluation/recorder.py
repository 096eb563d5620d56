"""What became of each sample of a run: kept in memory for the metrics and on disk for good.

Invariant: each expected sample is recorded exactly once, in its final state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.evaluation.intervals import estimate_mean
from live_eval.evaluation.job import Progress
from live_eval.evaluation.sample_log import SampleLog
from live_eval.reasons import EndReason

if TYPE_CHECKING:
    from live_eval.evaluation.ending import StopSignal
    from live_eval.evaluation.sample import Sample

_PROGRESS_STEPS = 100


class Recorder:
    """Keeps the samples of one run. A disk that fails stops the run; it never raises."""

    def __init__(
        self,
        path: Path,
        expected: list[Sample],
        *,
        stop: StopSignal,
        on_progress: Callable[[Progress], None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`expected` holds every sample as it is to be recorded if nothing comes of it (aborted)."""
        self._path = path
        self._stop = stop
        self._on_progress = on_progress
        self._open = {(sample.row_id, sample.sample): sample for sample in expected}
        self._num_expected = len(self._open)
        self._step = max(1, self._num_expected // _PROGRESS_STEPS)
        self._num_done = 0
        self._clock = clock
        self.last_at = clock()
        """When a sample was recorded last, by the clock."""
        self._rewards: dict[str, list[float]] = {}
        """Of the samples that are scored, by row."""
        self._log: SampleLog | None = None
        self.samples: list[Sample] = []
        """All that are recorded."""
        self.first_error = ""
        """Error of the first sample that errored."""

    def open(self, taken_up: Sequence[Sample] = ()) -> None:
        """Make the file, with the samples of earlier attempts in it; the progress so far is told."""
        try:
            self._log = SampleLog(self._path, taken_up)
        except OSError as error:
            self._disk_failed(error)
        self.last_at = self._clock()
        for sample in taken_up:
            del self._open[sample.row_id, sample.sample]
            self._keep(sample)
        self._tell()

    @property
    def num_open(self) -> int:
        """Samples that are expected and not recorded yet."""
        return len(self._open)

    @property
    def num_scored(self) -> int:
        """Samples that have a reward."""
        return sum(map(len, self._rewards.values()))

    def is_open(self, row_id: str, sample: int) -> bool:
        """Whether the sample is expected and not recorded yet."""
        return (row_id, sample) in self._open

    def draft(self, row_id: str, sample: int) -> Sample:
        """The sample as it would be recorded if the run ended now; KeyError if it is recorded."""
        return self._open[row_id, sample]

    def keep_draft(self, sample: Sample) -> None:
        """Replace the draft, for example by one with its answer that has no reward yet."""
        self._open[sample.row_id, sample.sample] = sample

    def record(self, sample: Sample) -> None:
        """Record a sample in its final state; KeyError if it is recorded already."""
        del self._open[sample.row_id, sample.sample]
        self.last_at = self._clock()
        self._write(sample)
        self._keep(sample)
        if sample.status != "aborted" and (self._num_done % self._step == 0 or not self._open):
            self._tell()

    def _keep(self, sample: Sample) -> None:
        self.samples.append(sample)
        if sample.status == "aborted":
            return
        self._num_done += 1
        if sample.reward is not None:
            self._rewards.setdefault(sample.row_id, []).append(sample.reward)
        elif not self.first_error:
            self.first_error = f"row {sample.row_id}, sample {sample.sample}: {sample.error}"

    async def close(self) -> None:
        """Record what is left as aborted and put all on the disk."""
        ending = self._stop.ending
        why = f"the job ended before: {ending.reason}" if ending else "no answer"
        for sample in list(self._open.values()):
            self.record(sample if sample.error else replace(sample, error=why))
        if self._log is None:
            return
        log, self._log = self._log, None
        try:
            await asyncio.to_thread(log.close)
        except OSError as error:
            self._disk_failed(error)

    def _write(self, sample: Sample) -> None:
        if self._log is None:
            return
        try:
            self._log.append(sample)
        except OSError as error:
            self._disk_failed(error)

    def _disk_failed(self, error: OSError) -> None:
        self._stop.fail(EndReason.INTERNAL, f"samples cannot be saved in {self._path}: {error}")

    def _tell(self) -> None:
        if self._on_progress is None:
            return
        so_far = estimate_mean(list(self._rewards.values()))
        self._on_progress(
            Progress(
                num_done=self._num_done,
                num_expected=self._num_expected,
                mean=so_far.mean if so_far else None,
                low=so_far.low if so_far else None,
                high=so_far.high if so_far else None,
                num_scored=self.num_scored,
            )
        )
