"""slime's training actor with the tap in its weight updater.

The only module that subclasses slime; the trainers' nodes import it by name. What it needs to know
travels in slime's arguments as plain values, because slime writes its arguments into checkpoints.
"""

from __future__ import annotations

from typing import Any

# isort: off
from slime.backends.megatron_utils.actor import (  # pyright: ignore[reportMissingImports]
    MegatronTrainRayActor,
)

# isort: on
from slime_patch.tap import SyncNote
from slime_patch.tap_plan import TAP_ATTRIBUTE, Tap, TapPlan, make_tap


class LiveEvalTrainActor(MegatronTrainRayActor):
    """Trains as slime does; hands each wanted weight update to live-eval as well."""

    _live_eval_tap: Tap | None = None

    def init(self, args: Any, role: str, *rest: Any, **named: Any) -> Any:
        """slime's init, then the tap, where there is an updater."""
        start_rollout_id = super().init(args, role, *rest, **named)
        plan = getattr(args, TAP_ATTRIBUTE, None)
        updater = getattr(self, "weight_updater", None)
        if role == "actor" and plan is not None and updater is not None:
            self._live_eval_tap = make_tap(updater, TapPlan(**plan))
        return start_rollout_id

    def live_eval_note(self, rollout_id: int | None, train_step: int | None, wanted: bool) -> None:
        """What the driver knows of the next update; it comes before it."""
        if self._live_eval_tap is not None:
            self._live_eval_tap.note = SyncNote(rollout_id=rollout_id, train_step=train_step, wanted=wanted)

    def live_eval_close(self, timeout_s: float) -> None:
        """Training is over: hand over what is staged, within `timeout_s` seconds."""
        if self._live_eval_tap is not None:
            self._live_eval_tap.close(timeout_s)
