"""Which part of the engine group each running evaluation has, counted in engines.

    all     one evaluation after the other has the whole group
    fair    a checkpoint gets its part of the engines that are free, divided among the checkpoints that wait
    N       a checkpoint gets N engines, whoever else waits

A policy version has the whole group to itself in each of these. Which engines make up a part is decided by
who lends them, since some may be down. Invariant: a part is handed out only while all parts together fit
into the group, and the whole group only while nobody has a part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from live_eval.scheduling.config import EnginesPerEval
    from live_eval.scheduling.jobs import Evaluation


class Shares:
    """The parts that are handed out, by evaluation."""

    def __init__(self, num_engines: int, per_eval: EnginesPerEval) -> None:
        self._num_engines = num_engines
        self._per_eval: EnginesPerEval = per_eval
        self._parts: dict[str, int | None] = {}

    def resize(self, num_engines: int) -> None:
        """The group has so many engines now; parts that are out stay as they are."""
        self._num_engines = max(num_engines, 1)

    def has_room(self, evaluation: Evaluation) -> bool:
        """Whether the evaluation could have its part now."""
        if not self._parts:
            return True
        if self._is_whole(evaluation) or None in self._parts.values():
            return False
        return self._num_free >= self._least

    def take(self, evaluation: Evaluation, *, num_waiting: int) -> int | None:
        """The engines that it gets, None for the whole group; RuntimeError if there is no room.

        `num_waiting`: the evaluations among which what is free is divided, this one included.
        """
        if not self.has_room(evaluation):
            raise RuntimeError(f"there is no room for {evaluation.key} beside {', '.join(self._parts)}")
        part = None
        if not self._is_whole(evaluation):
            part = max(self._num_free // num_waiting, 1) if self._per_eval == "fair" else self._least
        self._parts[evaluation.key] = part
        return part

    def give_back(self, evaluation: Evaluation) -> None:
        """The evaluation needs its part no more."""
        self._parts.pop(evaluation.key, None)

    @property
    def _least(self) -> int:
        return min(self._per_eval, self._num_engines) if isinstance(self._per_eval, int) else 1

    @property
    def _num_free(self) -> int:
        return self._num_engines - sum(part or 0 for part in self._parts.values())

    def _is_whole(self, evaluation: Evaluation) -> bool:
        return self._per_eval == "all" or evaluation.policy_version is not None
