"""The tap in slime's weight updater: what it sends to the rollout engines is handed to a publisher too.

    updater.update_weights()      -> publisher.begin ... publisher.commit around it
    updater._on_chunk(chunk)      -> publisher.put_bucket(chunk), before the chunk is sent and cleared

Only source ranks (one a pipeline rank) hold chunks; the others do nothing. Invariants: whatever
happens in here, the update goes on as without it and its own errors come out unchanged; the bytes are
copied before `_on_chunk` returns, so the trainer may change its weights at once.

A MemberTap copies nothing: the receiver is a member of the group in which the chunks are broadcast.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from live_eval.errors import ConfigError
from live_eval.publisher.meter import SyncMeter

if TYPE_CHECKING:
    import torch

    from live_eval.publisher.base import Publisher
    from live_eval.publisher.member import MemberConfig, MemberPublisher
    from live_eval.publisher.sender import ReceiverLink
    from slime_patch.member import MemberSeat

logger = logging.getLogger(__name__)

CHUNK_SEAM = "_on_chunk"
"""slime shows the distributed updater's chunks here, before it sends them."""


class Updater(Protocol):
    """An updater of slime, as far as the tap knows it."""

    weight_version: int
    update_weights: Callable[[], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class SyncNote:
    """What the driver knows of the next update."""

    rollout_id: int | None = None
    """The rollout after whose training it comes; None: the first push of a new run."""
    train_step: int | None = None
    """Optimizer steps done."""
    wanted: bool = True
    """Whether it is to become a policy version."""


class WeightTap:
    """Taps one updater. `make_publisher(slot_bytes)` is called at the first update of a source rank.

    `seam` is the updater's method that is given each chunk. `slot_bytes` None: nothing is staged.
    """

    def __init__(
        self,
        updater: Updater,
        make_publisher: Callable[[int], Publisher],
        *,
        slot_bytes: int | None,
        seam: str = CHUNK_SEAM,
    ) -> None:
        seams = ("update_weights", seam, "weight_version")
        missing = [name for name in seams if not hasattr(updater, name)]
        if missing:
            raise ConfigError(
                f"{type(updater).__name__} has no {', '.join(missing)}: this way of updating weights "
                "cannot be "
                "listened to; use --update-weight-mode full over nccl with a slime that `python -m "
                "slime_patch "
                "check` accepts"
            )
        self._updater = updater
        self._make_publisher = make_publisher
        self._slot_bytes = slot_bytes
        self._publisher: Publisher | None = None
        self._open = False
        self._num_bytes = 0
        self.note = SyncNote()
        """Of the next update."""
        self.meter = SyncMeter()
        """What the updates cost this rank and what became of them, in its log. The driver is told by the
        receiver's record: see live_eval.publisher.meter."""
        self._update_weights, self._send_chunk = updater.update_weights, getattr(updater, seam)
        updater.update_weights = self._tapped_update
        setattr(updater, seam, self._tapped_chunk)

    def close(self, timeout_s: float) -> None:
        """Let the last version be handed over, within `timeout_s` seconds."""
        if self._publisher is not None:
            publisher = self._publisher
            self._guarded("closing", lambda: publisher.close(timeout_s))
            self._guarded("closing", self._log_outcomes)

    # --- called by slime ------------------------------------------------------------------

    def _tapped_update(self) -> None:
        began = time.perf_counter()
        self._prepare()
        self._guarded("the begin of an update", lambda: self._begin(began))
        try:
            self._update_weights()
        except BaseException as error:
            reason = f"the update failed: {type(error).__name__}"
            self._guarded("giving an update up", lambda: self._abort(reason))
            raise
        self._guarded("the end of an update", self._commit)

    def _tapped_chunk(self, hf_chunk: list[tuple[str, torch.Tensor]]) -> Any:
        if self._open:
            self._guarded("a bucket", lambda: self._put(hf_chunk))
        return self._send_chunk(hf_chunk)

    # --- towards the publisher ------------------------------------------------------------

    def _is_source(self) -> bool:
        return getattr(self._updater, "_is_pp_src_rank", False)

    def _prepare(self) -> None:
        """What an update needs beforehand."""

    def _begin(self, held_since: float) -> None:
        self._open = False
        if not self.note.wanted or not self._is_source():
            return
        if self._publisher is None:
            self._publisher = self._make_publisher(self._slot_bytes or 0)
        self._num_bytes = 0
        # The wait for a free slot, if there is one, is over before the engines are paused.
        self._publisher.begin(
            self._updater.weight_version + 1,
            rollout_id=self.note.rollout_id,
            train_step=self.note.train_step,
            held_s=time.perf_counter() - held_since,
        )
        self._open = True

    def _put(self, chunk: Sequence[tuple[str, torch.Tensor]]) -> None:
        from live_eval.publisher.base import tensor_meta
        from live_eval.publisher.staging import staging_bytes

        assert self._publisher is not None
        self._publisher.put_bucket(chunk)
        self._num_bytes += staging_bytes(tensor_meta(name, tensor) for name, tensor in chunk)

    def _commit(self) -> None:
        if not self._open or self._publisher is None:
            return
        self._open = False
        self.meter.reported(self._publisher.commit())
        self._log_outcomes()
        if self._slot_bytes is not None and self._num_bytes > self._slot_bytes:
            logger.warning("staging grows from %d to %d bytes", self._slot_bytes, self._num_bytes)
            publisher, self._publisher = self._publisher, None
            self._slot_bytes = self._num_bytes
            publisher.close(0.0)

    def _abort(self, reason: str) -> None:
        if self._open and self._publisher is not None:
            self._open = False
            self._publisher.abort(reason)

    def _log_outcomes(self) -> None:
        for outcome in self._publisher.outcomes() if self._publisher is not None else []:
            self.meter.ended(outcome)

    def _guarded(self, what: str, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:  # the trainer's supervisor: no fault of ours may reach the training
            self._open = False
            self.meter.failed(what, error)


class MemberTap(WeightTap):
    """Taps an updater whose group the receiver is a member of, in `seat`."""

    def __init__(self, updater: Updater, publisher: MemberPublisher, seat: MemberSeat) -> None:
        super().__init__(updater, lambda _: publisher, slot_bytes=None)
        self._seat = seat

    def _prepare(self) -> None:
        self._seat.make_sure()


def seat_receiver(
    updater: Updater,
    link: ReceiverLink,
    config: MemberConfig,
    *,
    get: Callable[[Any], Any],
    ready: Callable[[], Any],
) -> MemberTap:
    """Make the receiver at `link` a member of the updater's group, and tap it.

    `get` waits for a Ray reference, `ready` makes one that is ready.
    """
    from live_eval.publisher.member import MemberPublisher
    from slime_patch.member import MemberSeat, ReceiverEngine

    publisher = MemberPublisher(link, config, is_member=lambda: seat.taken, on_silence=lambda: seat.leave())
    seat = MemberSeat(updater, ReceiverEngine(link, publisher.announce, ready=ready), link, get=get)
    return MemberTap(updater, publisher, seat)
