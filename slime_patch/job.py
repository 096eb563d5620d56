"""Live eval of one slime job, as the driver sees it: start, attach, finish.

    start     a node and GPUs, the service's actor, the receiver's actor; from then on their node is watched
    attach    the trainers learn before each update which rollout it belongs to
    finish    trainers hand over the last version and give their GPUs back; the rest is evaluated

Calls into the training are fire-and-forget. Invariant: after `start` nothing of live-eval raises in the
driver's training loop, and every wait is bounded.
"""

from __future__ import annotations

import logging
import uuid
from argparse import Namespace
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime_patch.drain import drain
from slime_patch.failure import SERVICE_GONE, FailurePolicy, wandb_alert
from slime_patch.node_watch import NodeWatch
from slime_patch.parts import EvalParts
from slime_patch.placement import check_importable, live_nodes, nodes_if_connected
from slime_patch.result_feed import ResultFeed, ask_actor
from slime_patch.reward import simple_arguments
from slime_patch.rollouts import Schedule, SyncCounter
from slime_patch.service_plan import ServicePlan
from slime_patch.settings import DEFAULT_DIR, Settings
from slime_patch.slime_eval.plan import slime_eval_plan
from slime_patch.tap_plan import TAP_ATTRIBUTE
from slime_patch.trainer_run import TrainerRun

if TYPE_CHECKING:
    from live_eval.results.rows import OutboxRow
    from protocol.messages import JobResult
    from slime_patch.result_feed import Taker
    from slime_patch.service_actor import Ready

logger = logging.getLogger(__name__)

ON_EVERY_NODE = ("slime_patch.tap_plan", "live_eval.publisher.sender")
"""Modules that trainers need, and with them the packages that live-eval depends on."""
CLOSE_TIMEOUT_S = 120.0
"""For the trainers to hand over the last version."""
EXIT_TIMEOUT_S = 30.0
FEED_END_S, FEED_STOP_S = 30.0, 5.0
"""For the last results to reach the trainer's W&B run: at the end of a job, and when it is given up."""


class LiveEvalJob:
    """One job's live eval."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.parts = EvalParts(settings, on_return=self._returned)
        self._args = Namespace()
        self._watch: NodeWatch | None = None
        self._groups: dict[str, Any] = {}
        self._trainers: Any = None
        self._rollout_manager: Any = None
        self._feed: ResultFeed | None = None
        self._counter: SyncCounter | None = None
        self._failure = FailurePolicy(settings.on_failure, alert=wandb_alert)
        self._ended = False

    # --- start ----------------------------------------------------------------------------

    def start(self, args: Namespace, pgs: Any, rollout_manager: Any) -> None:
        """Reserve, start the actors, and leave the trainers' part in `args`; ConfigError if it cannot be."""
        settings = self.settings
        self._rollout_manager = rollout_manager
        self._groups = pgs if isinstance(pgs, dict) else {"rollout": pgs}
        check_importable(live_nodes(), ON_EVERY_NODE)
        self._args = args
        try:
            ready, tap_plan = self.parts.start(self._service_plan(args))
            logger.info("live eval %s writes to %s", ready.run_id, ready.run_dir)
            print(f"live-eval: results go to {ready.run_dir}", flush=True)
            if settings.http is not None:
                print(f"live-eval: the page's address is in {ready.run_dir / 'http.url'}", flush=True)
            if tap_plan is not None:
                setattr(args, TAP_ATTRIBUTE, tap_plan.as_dict())
            self._start_feed(ready)
            self._watch = NodeWatch(self.parts, nodes_if_connected, say=_say)
            self._watch.start()
        except BaseException:
            self.abandon()
            raise

    def _service_plan(self, args: Namespace) -> ServicePlan:
        return ServicePlan(
            settings=self.settings,
            run_dir=self.settings.output_dir or _new_dir(),
            slime_arguments=simple_arguments(args),
            wandb_group=_wandb_group(),
            slime_eval=slime_eval_plan(args, self.settings.engines) if self.settings.by_slime else None,
        )

    def _returned(self, ready: Ready) -> None:
        """Service and receiver run on another node; a directory that is new there has rows of its own."""
        if self._feed is not None and ready.num_known < self._feed.after:
            self._stop_feed(FEED_STOP_S)
            self._start_feed(ready)

    def _start_feed(self, ready: Ready) -> None:
        """Results come to this process too: for the trainer's W&B run, for --eval-on-failure, and for due
        points whose sync was given up."""
        args = self._args
        takers: list[Taker] = [_results_only(self._failure.take, ready.num_known)]
        takers.append(lambda row: self._heard_of_sync(row, ready.num_known))
        if getattr(args, "use_wandb", False) or getattr(args, "use_tensorboard", False):
            run = TrainerRun(
                args,
                datasets=[dataset.name for dataset in self.settings.datasets],
                attach=self.settings.attach_wandb,
                known=ready.num_known,
            )
            takers.append(run.take)
        self._feed = ResultFeed(
            ask_actor(lambda: self.parts.service),
            takers,
            on_service_failed=lambda: self._failure.failed(SERVICE_GONE),
        )
        self._feed.start()

    def _heard_of_sync(self, row: OutboxRow, known: int) -> None:
        """A sync that was given up is told to who decides which updates are copied; called by the feed."""
        event = row.event
        if self._counter is not None and event is not None and row.seq > known and event.state == "discarded":
            self._counter.given_up(event.rollout_id)

    # --- attach ---------------------------------------------------------------------------

    def attach(self, args: Namespace, actor_model: Any) -> None:
        """Let the trainers know before each update which rollout and step it belongs to."""
        if self._trainers is not None:
            return
        self._trainers = actor_model
        watch_steps(actor_model, self._failure.check)
        settings, updates = self.settings, self.settings.updates
        if updates is None:
            return
        counter = SyncCounter(
            Schedule(
                start_rollout_id=args.start_rollout_id or 0,
                num_rollout=args.num_rollout,
                steps_per_rollout=settings.steps_per_rollout,
                update_weights_interval=settings.update_weights_interval,
                interval=settings.interval,
                skip_first=settings.skip_first,
                keep_all=settings.snapshot == "all",
                critic_only_steps=updates.critic_only_steps,
                first_push_has_version=updates.first_push_has_version,
            )
        )
        self._counter = counter
        watch_syncs(actor_model, counter)

    # --- finish ---------------------------------------------------------------------------

    def finish(self) -> None:
        """Give slime's GPUs back, let the rest be evaluated, and end; Ctrl-C ends the wait.

        EvalFailed where --eval-on-failure stop was given and an eval failed.
        """
        if self._ended:
            return
        try:
            self._release_slime()
            drain(lambda: self.parts.service, budget_s=self.settings.drain_timeout_s)
            self._stop_feed(FEED_END_S)
        except KeyboardInterrupt:
            print("live-eval: interrupted; what is left is cancelled", flush=True)
        finally:
            self.abandon()
        self._failure.check()

    def abandon(self) -> None:
        """End the service and its engines now; jobs that are left end with a reason."""
        if self._ended:
            return
        self._ended = True
        if self._watch is not None:
            self._watch.stop()
        import ray

        if not ray.is_initialized():
            return
        if self.parts.service is not None:
            self.parts.stop_service()
            self._stop_feed(FEED_STOP_S)
        self.parts.end()

    def _stop_feed(self, timeout_s: float) -> None:
        """The last results are passed on, within the bound."""
        if self._feed is not None:
            feed, self._feed = self._feed, None
            feed.stop(timeout_s)

    def _release_slime(self) -> None:
        """The last version is handed over first; then slime's actors end and its GPUs are given back."""
        import ray
        from ray.util.placement_group import remove_placement_group

        handles = list(getattr(self._trainers, "_actor_handlers", []))
        if handles and self.settings.taps_syncs:
            closing = [handle.live_eval_close.remote(CLOSE_TIMEOUT_S) for handle in handles]
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_TIMEOUT_S + 10)
        receiver = self.parts.receiver
        if receiver is not None:
            ray.wait([receiver.read_all_mail.remote(CLOSE_TIMEOUT_S)], timeout=CLOSE_TIMEOUT_S + 10)
        if handles:
            # Ray ends an actor's child processes with it, W&B's among them, before rows are written out.
            flushing = [handle.__ray_call__.remote(end_tracking) for handle in handles]
            ray.wait(flushing, num_returns=len(flushing), timeout=EXIT_TIMEOUT_S)
        for handle in handles:
            # At once: an actor that was asked to end may hang in its exit, and a kill no longer reaches it.
            ray.kill(handle, no_restart=True)
        if self._rollout_manager is not None:
            # Its engines are gone, and a fully-async worker in it would go on asking them.
            ray.wait([self._rollout_manager.__ray_terminate__.remote()], timeout=EXIT_TIMEOUT_S)
            ray.kill(self._rollout_manager, no_restart=True)
        groups = {entry[0] for entry in self._groups.values() if entry and entry[0] is not None}
        for group in groups:
            remove_placement_group(group)


def end_tracking(actor: Any) -> None:
    """Runs in one of slime's training actors: its part of the W&B run is complete."""
    from slime.observability.logging_utils import finish_tracking  # pyright: ignore[reportMissingImports]

    finish_tracking(actor.args)
    if getattr(actor.args, "use_wandb", False):
        import wandb

        wandb.teardown()  # finish returns before W&B's own process has written everything; this waits for it


def watch_steps(actor_model: Any, check: Callable[[], None]) -> None:
    """Let `check` raise before a training step is begun; the trainers are idle then."""
    async_train: Callable[..., Any] = actor_model.async_train

    def checked_train(*rest: Any, **named: Any) -> Any:
        check()
        return async_train(*rest, **named)

    actor_model.async_train = checked_train


def watch_syncs(actor_model: Any, counter: SyncCounter) -> None:
    """Wrap async_train and update_weights of a RayTrainGroup; their results and errors stay theirs."""
    async_train: Callable[..., Any] = actor_model.async_train
    update_weights: Callable[..., Any] = actor_model.update_weights

    def watched_train(rollout_id: int, *rest: Any, **named: Any) -> Any:
        counter.trained(rollout_id)
        return async_train(rollout_id, *rest, **named)

    def watched_update(*rest: Any, **named: Any) -> Any:
        note = counter.next_sync()
        # Nobody waits for it: an actor works off its calls in order, so it comes before the update.
        for handle in actor_model._actor_handlers:
            handle.live_eval_note.remote(note.rollout_id, note.train_step, note.wanted)
        return update_weights(*rest, **named)

    actor_model.async_train = watched_train
    actor_model.update_weights = watched_update


def _results_only(take: Callable[[JobResult], None], known: int) -> Taker:
    def taker(row: OutboxRow) -> None:
        if row.result is not None and row.seq > known:
            take(row.result)

    return taker


def _new_dir() -> Path:
    return Path(DEFAULT_DIR, datetime.now().strftime("%Y%m%d-%H%M%S") + f"-{uuid.uuid4().hex[:4]}").absolute()


def _say(line: str) -> None:
    print(f"live-eval: {line}", flush=True)


def _wandb_group() -> str | None:
    """The group of the trainer's run, which slime has started in this process if it uses W&B."""
    import sys

    wandb = sys.modules.get("wandb")
    run = getattr(wandb, "run", None)
    return getattr(run, "group", None) or None
