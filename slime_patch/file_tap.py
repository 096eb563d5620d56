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
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from live_eval.errors import ConfigError
from live_eval.mailbox import WEIGHTS, Mailbox
from live_eval.publisher.base import SyncReport
from live_eval.publisher.meter import SyncMeter
from live_eval.publisher.notes import given_up, outcome_of
from live_eval.publisher.opening import opening
from live_eval.reasons import DiscardReason
from protocol.errors import ProtocolError
from slime_patch.tap import SyncNote

if TYPE_CHECKING:
    from protocol.messages import SyncBegin

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
        self.meter = SyncMeter()
        """What the links cost the trainer, in its log; outcomes are known to the receiver alone."""
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
        except Exception as error:  # the trainer's supervisor: no fault of ours may reach the training
            self.meter.failed("linking files", error)

    # --- helpers --------------------------------------------------------------------------

    def _post(self, directory: Path) -> None:
        if self._updater.weight_version < 1:
            return  # the delta updater shows its empty directory first: no version is in it
        if not self._deltas and not self.note.wanted:
            return
        began = time.perf_counter()
        reason = self._try_to_post(directory, held_since=began)
        if self.note.wanted:
            held_s = time.perf_counter() - began
            version = self._updater.weight_version
            self.meter.reported(
                SyncReport(weight_version=version, published=not reason, reason=reason, held_s=held_s)
            )

    def _try_to_post(self, directory: Path, *, held_since: float) -> str:
        """Empty if it is posted, else the reason why it was given up."""
        begin = self._begin()
        if not self._deltas and self._mailbox.num_waiting(SOURCE) >= MAX_WAITING:
            detail = f"{MAX_WAITING} versions before it have not been taken"
            return self._give_up(_held(begin, held_since), DiscardReason.PUBLISHER_DEADLINE, detail)
        try:
            self._link(begin, directory, held_since=held_since)
        except (OSError, ProtocolError, KeyError, ValueError) as error:
            detail = f"{directory} cannot be linked into {self._mailbox.directory}: {error}"
            return self._give_up(_held(begin, held_since), DiscardReason.PUBLISHER_ABORTED, detail)
        return ""

    def _link(self, begin: SyncBegin, directory: Path, *, held_since: float) -> None:
        index = json.loads((directory / INDEX).read_text()) if self._deltas else {}
        draft = self._mailbox.draft(self._sender.life, begin.weight_version, SOURCE)
        try:
            for path in sorted(directory.glob("*" + WEIGHTS)):
                draft.link(path)
            delta = None
            if self._deltas:
                names = sorted(index["weight_map"])
                delta = {**index["metadata"], "tensors": names, "wanted": self.note.wanted}
            draft.post(_held(begin, held_since), delta=delta)
        except BaseException:
            draft.drop()
            raise

    def _begin(self) -> SyncBegin:
        return opening(
            self._sender,
            self._updater.weight_version,
            sources=(SOURCE,),
            rollout_id=self.note.rollout_id,
            train_step=self.note.train_step,
        )

    def _give_up(self, begin: SyncBegin, reason: DiscardReason, detail: str) -> str:
        note = given_up(begin, reason, detail)
        self.meter.ended(outcome_of(note))
        if self.note.wanted:
            self._mailbox.draft(self._sender.life, begin.weight_version, SOURCE).post(note)
        return reason


def _held(begin: SyncBegin, since: float) -> SyncBegin:
    """The begin, which is written last, with what the links have cost."""
    return msgspec.structs.replace(begin, held_s=time.perf_counter() - since)
