"""Pipeline sources of a slime trainer whose group the receiver is a member of."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fakes.slime_broadcast import BroadcastingUpdater, Lock
from fakes.sync import MODEL, content
from fakes.weights import weights

from live_eval.publisher.member import MemberConfig
from slime_patch.tap import SyncNote, seat_receiver

if TYPE_CHECKING:
    import torch
    from fakes.member_wire import Wire
    from fakes.slime_standins import NamedTensors

    from protocol.messages import SyncOutcome

WAIT_S = 60.0


class Rank:
    """Every `stride`-th tensor of the model, in buckets of one."""

    def __init__(self, number: int, stride: int, wire: Wire) -> None:
        self.parameters: dict[str, torch.Tensor] = {}
        self._number, self._stride = number, stride
        self._outcomes: dict[int, SyncOutcome] = {}
        self.updater = BroadcastingUpdater(self.chunks, get=wire.get, pp_rank=number)
        self.lock = Lock(wire.put)
        config = MemberConfig(
            run_id="run",
            source=f"pp_{number}",
            sources=tuple(f"pp_{each}" for each in range(stride)),
            incarnation_id="life",
        )
        self.tap = seat_receiver(self.updater, wire.link, config, get=wire.get, ready=lambda: wire.put(None))
        self._ended = self.tap.meter.ended
        self.tap.meter.ended = self._note
        self.updater.connect_rollout_engines([], self.lock, engine_gpu_counts=[])

    def _note(self, outcome: SyncOutcome) -> None:
        self._outcomes[outcome.weight_version] = outcome
        self._ended(outcome)

    def chunks(self) -> list[NamedTensors]:
        return [[(name, tensor)] for name, tensor in self.parameters.items()]

    def sync(self, version: int, *, wanted: bool = True) -> None:
        """Update, and change the weights in place the moment the update returns."""
        self.parameters = dict(weights(version)[self._number :: self._stride])
        self.tap.note = SyncNote(rollout_id=version - 2, train_step=version, wanted=wanted)
        self.updater.update_weights()
        for tensor in self.parameters.values():
            tensor.fill_(0)

    def close(self) -> None:
        """The training ends."""
        self.tap.close(10.0)
        self.updater.destroy_group()

    def outcome(self, version: int) -> SyncOutcome:
        """What became of a weight version."""
        deadline = time.monotonic() + WAIT_S
        while version not in self._outcomes:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            self.tap._log_outcomes()
        return self._outcomes[version]


def ranks_at(wire: Wire, number: int = 1) -> list[Rank]:
    """All sources of one trainer."""
    return [Rank(each, number, wire) for each in range(number)]


def whole(version: int) -> dict[str, bytes]:
    """The model as all ranks together send it."""
    return {meta.name: content(meta, version).tobytes() for meta in MODEL}
