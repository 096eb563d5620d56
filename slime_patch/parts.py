"""What a job's live eval has in the Ray cluster: a place, the service's actor, the receiver's actor.

Started together on one node, and again on another when that has gone (see node_watch). Invariants: service
and receiver are never on two nodes; when it has ended, nothing is started any more; the receiver keeps
the name that the trainers know.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from live_eval.errors import ConfigError
from slime_patch.placement import Claim, EvalPlace, find_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from slime_patch.service_actor import Ready
    from slime_patch.service_plan import ServicePlan
    from slime_patch.settings import Settings
    from slime_patch.tap_plan import TapPlan

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 300.0
"""For the service's actor to read the model's headers and prepare the eval sets."""
STOP_GRACE_S = 20.0


class EvalParts:
    """Of one job. `on_return` is told when they have started on another node, by the thread that watches."""

    def __init__(self, settings: Settings, *, on_return: Callable[[Ready], None]) -> None:
        self._settings = settings
        self._on_return = on_return
        self.place: EvalPlace | None = None
        self.service: Any = None
        self.receiver: Any = None
        """None where no weights are sent."""
        self._plan: ServicePlan | None = None
        self._tap_plan: TapPlan | None = None
        self._claim = Claim(settings.engines)
        self._lock = threading.Lock()
        self._ended = False

    # --- called by the driver -------------------------------------------------------------

    def start(self, plan: ServicePlan) -> tuple[Ready, TapPlan | None]:
        """Reserve a place and start on it; what the trainers must know. ConfigError if it cannot be."""
        self._plan = plan
        self.place = find_place(self._settings.engines)
        return self._start_all(), self._tap_plan

    def stop_service(self) -> None:
        """End the service; jobs that are left end with a reason. Waits within bounds."""
        import ray
        import ray.exceptions

        if self.service is not None:
            try:
                ray.get(self.service.stop.remote(STOP_GRACE_S), timeout=2 * STOP_GRACE_S + 10)
            except ray.exceptions.RayError as error:
                logger.warning("the service did not end in time: %s", cause(error))

    def end(self) -> None:
        """Let go of everything, for good. Does not wait."""
        with self._lock:
            self._ended = True
        self._let_go()

    # --- called by the watch --------------------------------------------------------------

    @property
    def node_id(self) -> str:
        """Where they run, or ran."""
        return self.place.node_id if self.place is not None else ""

    def lose(self) -> None:
        """Their node is gone. Ray would start the service's actor elsewhere by itself: it is ended."""
        self._let_go()

    def start_again(self) -> bool:
        """Start on a node that has room, under the trainers' name; False while there is none."""
        place = self._claim.poll()
        if place is None:
            return False
        self.place = place
        try:
            ready = self._start_all()
        except BaseException:
            self._let_go()
            raise
        self._on_return(ready)
        return True

    # --- helpers --------------------------------------------------------------------------

    def _start_all(self) -> Ready:
        ready = self._start_service()
        if self._settings.taps_syncs:
            self._start_receiver(ready)
        return ready

    def _start_service(self) -> Ready:
        import ray
        import ray.exceptions

        from slime_patch.service_actor import ServiceActor

        assert self.place is not None
        options = self.place.actor_options(self._settings.engines.num_gpus)
        with self._lock:
            self._check_not_ended()
            self.service = (
                ray.remote(ServiceActor)
                .options(**options, max_restarts=-1, max_task_retries=0, max_concurrency=4)
                .remote(self._plan)
            )
        try:
            return ray.get(self.service.ready.remote(), timeout=START_TIMEOUT_S)
        except ray.exceptions.RayError as error:
            raise ConfigError(f"live eval does not start: {cause(error)}") from error

    def _start_receiver(self, ready: Ready) -> None:
        from slime_patch.receiver import start_receiver

        assert self.place is not None
        life = self._tap_plan.incarnation_id if self._tap_plan is not None else None
        receiver, self._tap_plan = start_receiver(self._settings, self.place, ready, life=life)
        with self._lock:
            self.receiver = receiver
            self._check_not_ended()

    def _check_not_ended(self) -> None:
        if self._ended:
            raise ConfigError("live eval has ended")

    def _let_go(self) -> None:
        import ray

        for actor in (self.service, self.receiver):
            if actor is not None:
                ray.kill(actor, no_restart=True)
        self._claim.release()
        if self.place is not None:
            self.place.release()


def cause(error: Exception) -> str:
    """The line of a remote traceback that says what is wrong."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
