"""The tap in slime's disk updaters: what they have written is linked into a mailbox before slime deletes it.

    updater.update_weights()                        between its barriers, on every rank:
        updater._post_write_hook(args, dir, engines)    the user's own hook, then links, on rank 0

Links and not copies, so the training waits for a few names. Needs no thread and no answer: a trainer may be
killed right after the update, as --release-train does. Invariants: the user's hook runs as without the tap,
and its errors come out unchanged; nothing of live-eval's does; no link is made before all ranks' files are
there.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from live_eval.errors import ConfigError
from live_eval.mailbox import WEIGHTS, Mailbox
from live_eval.reasons import DiscardReason
from protocol.errors import ProtocolError
from protocol.messages import SyncBegin, SyncGivenUp
from slime_patch.tap import SyncNote

logger = logging.getLogger(__name__)

HOOK_SEAM = "_post_write_hook"
INDEX = "model.safetensors.index.json"
MAX_WAITING = 2
"""Whole versions that lie in the mailbox at once; deltas are small, and none can be left out."""
SOURCE = "files"

Hook = Callable[[Any, str, Sequence[Any]], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sender:
    """Who posts."""

    run_id: str
    incarnation_id: str

    @property
    def life(self) -> str:
        """A short name of the incarnation."""
        return self.incarnation_id[:12]


class FileTap:
    """Taps one updater; on ranks that are not the `main` one it does nothing."""

    def __init__(self, updater: Any, mailbox: Mailbox, sender: Sender, *, main: bool, deltas: bool) -> None:
        missing = [name for name in ("weight_version", HOOK_SEAM) if not hasattr(updater, name)]
        if missing:
            raise ConfigError(
                f"{type(updater).__name__} has no {', '.join(missing)}: its files cannot be linked; use a "
                "slime that `python -m slime_patch check` accepts, or --eval-mode checkpoint"
            )
        self._updater = updater
        self._mailbox = mailbox
        self._sender = sender
        self._deltas = deltas
        self.note = SyncNote()
        """Of the next update."""
        self.num_faults = 0
        """Errors of live-eval that were kept from the trainer."""
        self._hook: Hook | None = updater._post_write_hook
        if main:
            updater._post_write_hook = self._written

    def close(self, timeout_s: float) -> None:
        """Everything is posted already."""

    # --- called by slime ------------------------------------------------------------------

    def _written(self, args: Any, directory: str, rollout_engines: Sequence[Any]) -> None:
        if self._hook is not None:
            self._hook(args, directory, rollout_engines)
        try:
            self._post(Path(directory))
        except Exception:  # the trainer's supervisor: no fault of ours may reach the training
            self.num_faults += 1
            logger.exception("live-eval failed at linking %s; training goes on", directory)

    # --- helpers --------------------------------------------------------------------------

    def _post(self, directory: Path) -> None:
        if self._updater.weight_version < 1:
            return  # the delta updater shows its empty directory first: no version is in it
        if not self._deltas and not self.note.wanted:
            return
        begin = self._begin()
        if not self._deltas and self._mailbox.num_waiting(SOURCE) >= MAX_WAITING:
            detail = f"{MAX_WAITING} versions before it have not been taken"
            self._give_up(begin, DiscardReason.PUBLISHER_DEADLINE, detail)
            return
        try:
            self._link(begin, directory)
        except (OSError, ProtocolError, KeyError, ValueError) as error:
            detail = f"{directory} cannot be linked into {self._mailbox.directory}: {error}"
            self._give_up(begin, DiscardReason.PUBLISHER_ABORTED, detail)

    def _link(self, begin: SyncBegin, directory: Path) -> None:
        index = json.loads((directory / INDEX).read_text()) if self._deltas else {}
        draft = self._mailbox.draft(self._sender.life, begin.weight_version, SOURCE)
        try:
            for path in sorted(directory.glob("*" + WEIGHTS)):
                draft.link(path)
            delta = None
            if self._deltas:
                names = sorted(index["weight_map"])
                delta = {**index["metadata"], "tensors": names, "wanted": self.note.wanted}
            draft.post(begin, delta=delta)
        except BaseException:
            draft.drop()
            raise
        logger.info("weight version %d: linked for live eval", begin.weight_version)

    def _begin(self) -> SyncBegin:
        version = self._updater.weight_version
        return SyncBegin(
            sync_id=f"{self._sender.incarnation_id}/{version}",
            run_id=self._sender.run_id,
            incarnation_id=self._sender.incarnation_id,
            weight_version=version,
            sources=(SOURCE,),
            rollout_id=self.note.rollout_id,
            train_step=self.note.train_step,
            began_at=time.time(),
        )

    def _give_up(self, begin: SyncBegin, reason: DiscardReason, detail: str) -> None:
        logger.warning("weight version %d is given up: %s (%s)", begin.weight_version, reason, detail)
        if not self.note.wanted:
            return
        note = SyncGivenUp(
            sync_id=begin.sync_id,
            run_id=begin.run_id,
            incarnation_id=begin.incarnation_id,
            weight_version=begin.weight_version,
            reason=reason,
            detail=detail,
            rollout_id=begin.rollout_id,
            train_step=begin.train_step,
        )
        self._mailbox.draft(self._sender.life, begin.weight_version, SOURCE).post(note)
