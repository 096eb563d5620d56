"""The service: puts store, engines, evaluation, scheduler, ledger and sinks together, and runs.

    ledger, store, graders, engines, sinks, channel  ->  coordinator.run()  ->  all of it undone

It decides nothing and does nothing of its own. What is built is undone in the reverse order,
also where building it half failed. SIGTERM or SIGINT once ends all jobs and then the service, or what
there is of it while it starts; twice ends it at once.

    python -m live_eval.service CONFIG.json
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.channel import ChannelServer, Connection, socket_path
from live_eval.config import ServiceConfig
from live_eval.coordinator.coordinator import Coordinator
from live_eval.coordinator.evaluator import Evaluator
from live_eval.coordinator.records import JobRecords
from live_eval.coordinator.watch import CheckpointWatch
from live_eval.coordinator.wiring import checkpoints_of, digest_of, engine_specs, same_as, vector_of
from live_eval.engines.engine import EngineState
from live_eval.engines.fingerprint import FingerprintBook
from live_eval.engines.group import EngineGroup, GroupSettings
from live_eval.errors import ConfigError, LiveEvalError
from live_eval.evaluation.datasets import load_eval_sets
from live_eval.evaluation.grading_pool import GradingPool
from live_eval.evaluation.rewards import make_grader
from live_eval.evaluation.tokenizer import tokenizer_for
from live_eval.processes import end_with_parent
from live_eval.results.jsonl_sink import JsonlSink
from live_eval.results.ledger import Ledger
from live_eval.results.reader import LedgerReader
from live_eval.results.sinks import Sink, SinkPump
from live_eval.results.wandb_sink import WandbSink, wandb_run_id
from live_eval.rundir import SERVICE_SOCKET, RunDir
from live_eval.scheduling.scheduler import Scheduler
from live_eval.store.checkpoint import check_complete
from live_eval.store.store import VersionStore
from protocol.errors import ProtocolError, UnknownMessage
from protocol.messages import (
    CancelJob,
    EngineEvent,
    JobEvent,
    JobsAccepted,
    Message,
    ServiceStatus,
    StatusRequest,
    StoreChanged,
    SubmitCheckpoint,
    Subscribe,
    TrainingEnded,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from live_eval.evaluation.datasets import EvalSet
    from live_eval.evaluation.rewards import Grader
    from live_eval.evaluation.run import Runs
    from live_eval.http.api import HttpApi

logger = logging.getLogger(__name__)

LAST_LOOK_S = 0.5
WATCH_S = 2.0
"""Between two looks into the watched folders; a checkpoint is taken at the second that finds it unchanged."""
SINK_CLOSE_S = 60.0
"""For sinks to take the last rows when the service ends; what is left waits in the ledger."""
FINGERPRINTS = "fingerprint/"
"""Prefix of the ledger's keys under which fingerprints are kept."""
CHECKSUMS = "checksum/"
"""The same for the engines' own checksums."""


class Service:
    """One service over one run directory."""

    def __init__(
        self,
        config: ServiceConfig,
        *,
        runs: Runs | None = None,
        on_serving: Callable[[Coordinator], None] | None = None,
        on_event: Callable[[JobEvent | EngineEvent], None] | None = None,
    ) -> None:
        """`runs`: another runner than live-eval's own. For who runs it in their own process:
        `on_serving` is called once it takes work, `on_event` is told what subscribers are told."""
        self._config = config
        self._runs = runs
        self._on_serving = on_serving
        self._on_event = on_event
        self._run_dir = RunDir(config.run_dir)
        self._subscribers: set[Connection] = set()
        self._coordinator: Coordinator | None = None
        self._group: EngineGroup | None = None
        self._pump: SinkPump | None = None
        self._http: HttpApi | None = None
        self._folders = CheckpointWatch(config.checkpoint_watch)
        self._looking = asyncio.Lock()
        self._stopped = False
        self._engine_states: dict[str, str] = {}

    @property
    def stopped(self) -> bool:
        """Whether a signal told it to end."""
        return self._stopped

    async def run(self) -> None:
        """Serve until training has ended and everything due is evaluated, or until told to stop."""
        self._on_signals()
        try:
            async with AsyncExitStack() as stack:
                await self._serve(await self._build(stack))
                logger.info("all is evaluated")
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            logger.info("stopped while starting")

    async def _serve(self, coordinator: Coordinator) -> None:
        running = asyncio.create_task(coordinator.run(), name="coordinator")
        watching: asyncio.Task[None] | None = None
        try:
            await asyncio.sleep(0)  # it takes up what the ledger knows before anyone asks it for more
            self._coordinator = coordinator
            self._count_engines()
            logger.info("serving %s", self._run_dir.root)
            if self._on_serving is not None:
                self._on_serving(coordinator)
            if self._config.checkpoint_watch:
                watching = asyncio.create_task(self._watch(coordinator), name="watch")
            await running
        finally:
            for task in filter(None, (running, watching)):
                task.cancel()
                await asyncio.wait([task])

    async def _watch(self, coordinator: Coordinator) -> None:
        """Submit what appears in the watched folders."""
        while True:
            await self._look(coordinator)
            await asyncio.sleep(WATCH_S)

    async def _look(self, coordinator: Coordinator) -> None:
        """Look once; what cannot be read now is there for the next look."""
        try:
            await self._submit_new(coordinator)
        except (LiveEvalError, OSError) as error:
            logger.warning("the folders cannot be looked at now: %s", error)

    async def _submit_new(self, coordinator: Coordinator) -> None:
        async with self._looking:
            with LedgerReader.open_readonly(self._run_dir.ledger) as ledger:
                known = checkpoints_of(ledger.jobs())  # some were asked for by their names
            found = await asyncio.to_thread(self._folders.look, known)
            for _, why in found.refused:
                logger.warning("not evaluated: %s", why)
            for path in found.whole:
                try:
                    job_ids = coordinator.submit_checkpoint(str(path), checked=True)
                    logger.info("%s: %s", path, ", ".join(job_ids))
                except LiveEvalError as error:
                    logger.warning("not evaluated: %s", error)

    async def _last_looks(self, coordinator: Coordinator) -> None:
        """What a trainer saved just before its end counts too; two looks, since one alone takes nothing."""
        if self._config.checkpoint_watch:
            await self._look(coordinator)
            await asyncio.sleep(LAST_LOOK_S)
            await self._look(coordinator)

    # --- wiring ---------------------------------------------------------------------------

    async def _build(self, stack: AsyncExitStack) -> Coordinator:
        config, run_dir = self._config, self._run_dir
        run_dir.make()
        ledger = Ledger.open(run_dir.ledger, run_id=config.run_id)
        stack.callback(ledger.close)
        # Before all that takes time: whoever starts the service may ask how far it is.
        await stack.enter_async_context(
            ChannelServer(socket_path(run_dir.root, SERVICE_SOCKET), self._handle)
        )
        store = stack.enter_context(
            VersionStore.open(
                run_dir.store, max_bytes=config.store.max_bytes, keep_newest=config.store.keep_newest
            )
        )
        if config.http is not None:
            self._http = await self._start_http(stack)
        eval_sets = await asyncio.to_thread(self._load_eval_sets)
        for name, eval_set in eval_sets.items():
            ledger.note_dataset(name, eval_set.description(), now=time.time())
        grader_of = await self._graders(stack)
        if self._runs is not None:
            await stack.enter_async_context(self._runs)
        self._pump = pump = self._start_sinks(stack, ledger)
        self._group = group = await self._engines(stack, ledger)

        def announce(event: JobEvent) -> None:
            pump.wake()
            self._tell(event)

        records = JobRecords(
            ledger,
            num_expected={name: eval_set.num_expected for name, eval_set in eval_sets.items()},
            announce=announce,
            digest_of=lambda version: digest_of(store, version),
            same_as=lambda version: same_as(store, version),
        )
        evaluator = Evaluator(
            group=group,
            store=store,
            eval_sets=eval_sets,
            grader_of=grader_of,
            samples_dir=run_dir.samples,
            limits=config.limits,
            make_run=self._runs.make if self._runs is not None else None,
        )
        return Coordinator(
            scheduler=Scheduler(config.schedule),
            config=config.schedule,
            store=store,
            ledger=ledger,
            records=records,
            evaluator=evaluator,
        )

    def _load_eval_sets(self) -> dict[str, EvalSet]:
        """Blocks: a tokenizer takes seconds, as does a large file."""
        tokenizer = tokenizer_for(
            self._config.datasets,
            self._config.base,
            trust_code="--trust-remote-code" in self._config.engines.extra_args,
        )
        return load_eval_sets(self._config.datasets, tokenizer=tokenizer)

    async def _graders(self, stack: AsyncExitStack) -> Callable[[str], Grader]:
        config = self._config
        pool = GradingPool(num_workers=config.num_graders, deadline_s=config.reward_timeout_s)
        await stack.enter_async_context(pool)
        for function in dict.fromkeys(dataset.function for dataset in config.datasets if dataset.function):
            await pool.check(function)
        datasets = {dataset.name: dataset for dataset in config.datasets}
        return lambda name: make_grader(datasets[name], pool)

    def _start_sinks(self, stack: AsyncExitStack, ledger: Ledger) -> SinkPump:
        sinks: list[Sink] = [JsonlSink(self._run_dir.results_jsonl)]
        if self._config.wandb is not None:
            names = [dataset.name for dataset in self._config.datasets]
            sinks.append(
                WandbSink(
                    self._config.wandb,
                    run_id=wandb_run_id(ledger),
                    datasets=names,
                    log=self._run_dir.logs / "wandb.log",
                )
            )
        pump = SinkPump(ledger, sinks)
        pump.start()
        stack.push_async_callback(asyncio.to_thread, pump.close, SINK_CLOSE_S)
        return pump

    async def _engines(self, stack: AsyncExitStack, ledger: Ledger) -> EngineGroup:
        kept = {key: vector_of(value) for key, value in ledger.under(FINGERPRINTS).items()}
        book = FingerprintBook(
            kept,
            on_add=lambda key, vector: ledger.put(FINGERPRINTS + key, list(vector)),
            checksums={key: str(value) for key, value in ledger.under(CHECKSUMS).items()},
            on_checksum=lambda key, checksum: ledger.put(CHECKSUMS + key, checksum),
        )
        group = EngineGroup(
            engine_specs(self._config),
            work_dir=self._run_dir.engines,
            log_dir=self._run_dir.logs,
            book=book,
            settings=GroupSettings(
                allowed_absent=self._config.store.allowed_absent,
                usable_timeout_s=self._config.engines.usable_timeout_s,
            ),
            on_state=self._engine_changed,
            on_load=self._load_began,
        )
        self._group = group  # who asks while they start sees them
        stack.push_async_callback(group.close)
        await group.start()
        await group.wait_usable(group.settings.usable_timeout_s)
        return group

    async def _start_http(self, stack: AsyncExitStack) -> HttpApi:
        try:  # FastAPI and uvicorn: for those who want them
            from live_eval.http.api import HttpApi
            from live_eval.http.source import ServiceSide
        except ImportError as error:
            raise ConfigError(f"no HTTP API without {error.name}: pip install 'live-eval[http]'") from error

        side = ServiceSide(
            config=self._config,
            status=self._status,
            submit=lambda path, datasets, priority: self._serving().submit_checkpoint(
                path, datasets, priority=priority, checked=True
            ),
            cancel=lambda job_id: self._serving().cancel(job_id),
            engines=lambda: self._group.engines if self._group is not None else (),
            sink_lag=lambda: self._pump.lag() if self._pump is not None else {},
        )
        return await stack.enter_async_context(HttpApi(side))

    def _on_signals(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def stop() -> None:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
            self._stopped = True
            if self._coordinator is not None:
                self._coordinator.shutdown()
            elif task is not None:
                task.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)

    # --- what others ask and are told -----------------------------------------------------

    async def _handle(self, message: Message, connection: Connection) -> Message | None:
        if isinstance(message, Subscribe):
            self._subscribers.add(connection)
            return None
        if isinstance(message, StatusRequest):
            return self._status()
        coordinator = self._serving()
        match message:
            case StoreChanged():
                coordinator.poke()
            case TrainingEnded():
                await self._last_looks(coordinator)
                coordinator.training_ended()
            case SubmitCheckpoint():
                await asyncio.to_thread(check_complete, message.path)
                job_ids = coordinator.submit_checkpoint(
                    message.path, message.datasets, priority=message.priority, checked=True
                )
                return JobsAccepted(job_ids=job_ids)
            case CancelJob():
                coordinator.cancel(message.job_id)
            case _:
                raise UnknownMessage(f"{type(message).__name__} is no message to a service")
        return None

    def _serving(self) -> Coordinator:
        if self._coordinator is None:
            raise LiveEvalError("the service is starting; ask again in some seconds")
        return self._coordinator

    def _status(self) -> ServiceStatus:
        if self._coordinator is None:
            return ServiceStatus(state="starting", engines=dict(self._engine_states))
        status = self._coordinator.status()
        return ServiceStatus(
            state=status.state,
            running=status.running,
            waiting=status.waiting,
            stable_version=status.stable_version,
            num_finished=status.num_finished,
            engines=dict(self._engine_states),
        )

    def _engine_changed(self, name: str, state: str, detail: str) -> None:
        self._engine_states[name] = str(state)
        self._count_engines()
        if self._http is not None:
            self._http.engine_event(name, str(state), detail)
        self._tell(EngineEvent(engine=name, state=str(state), detail=detail[:1000]))

    def _count_engines(self) -> None:
        """Evaluations side by side share those that are not given up."""
        engines = self._group.engines if self._group is not None else ()
        if self._coordinator is not None and engines:
            self._coordinator.engines_left(sum(engine.state is not EngineState.DEAD for engine in engines))

    def _load_began(self, name: str, label: str) -> None:
        if self._http is not None:
            self._http.load_began(name, label)

    def _tell(self, event: JobEvent | EngineEvent) -> None:
        if self._http is not None and isinstance(event, JobEvent):
            self._http.job_event(event)
        if self._on_event is not None:
            self._on_event(event)
        try:
            self._subscribers = {each for each in self._subscribers if each.push(event)}
        except ProtocolError:  # a name that no message can carry must not end the service
            logger.exception("subscribers cannot be told of %r", event)


def main(arguments: list[str], *, runs: Runs | None = None) -> int:
    """Run the service of a configuration file; 0 when all was evaluated, 2 for a known error."""
    logging.basicConfig(
        level=os.environ.get("LIVE_EVAL_LOG", "INFO"), format="%(asctime)s %(name)s %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    end_with_parent()
    try:
        asyncio.run(Service(ServiceConfig.load(Path(arguments[0])), runs=runs).run())
    except LiveEvalError as error:
        logger.error("%s", error)
        return 2
    except KeyboardInterrupt:
        logger.warning("ended at once by a second signal; what ran is taken up at the next start")
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)  # the status that a shell expects, without a traceback
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
