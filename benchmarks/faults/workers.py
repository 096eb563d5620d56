"""What runs in the bench's processes: receiver, trainer and service, forked ready from one server.

Each is the product's own code with probes around it. A worker names itself in a pid file, logs
to a file and dies with the server it was forked from.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.faults import guards
from benchmarks.faults.traps import CLOCK, TrapFile
from live_eval.processes import end_with_parent
from live_eval.subscriber.ray_receiver import RayReceiver, RayReceiverConfig

if TYPE_CHECKING:
    from live_eval.subscriber.facade_config import FacadeConfig

TICK_S = 0.05
PRELOAD = [
    "torch",
    "ray",
    "live_eval.subscriber.facade",
    "live_eval.publisher.collective",
    "live_eval.subscriber.mail_reader",
    "benchmarks.faults.trainer",
]
"""Modules of the server that workers are forked from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """Files of one run of the bench."""

    root: Path

    @property
    def store(self) -> Path:
        """The version store."""
        return self.root / "disk" / "store"

    @property
    def base(self) -> Path:
        """The checkpoint of the start."""
        return self.root / "base"

    @property
    def without(self) -> str:
        """The guard that is switched off, empty if none is."""
        path = self.root / "without"
        return path.read_text() if path.exists() else ""

    def trap(self, role: str) -> TrapFile:
        """Where the traps of `receiver`, `trainer` or `service` lie."""
        return TrapFile(self.root / f"{role}.trap")

    def log(self, role: str) -> Path:
        """What the processes of this role write."""
        return self.root / f"{role}.log"

    def pid_file(self, role: str) -> Path:
        """Where the present process of this role names itself."""
        return self.root / f"{role}.pid"


def start_worker(desk: Desk, role: str) -> TrapFile:
    """To be called first in each worker."""
    log = os.open(desk.log(role), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    time.time = CLOCK
    name_pid(desk, role)
    return desk.trap(role)


def name_pid(desk: Desk, role: str) -> None:
    """Write the pid file, at once or not at all."""
    spare = desk.pid_file(role).with_suffix(f".{os.getpid()}")
    spare.write_text(str(os.getpid()))
    spare.rename(desk.pid_file(role))


def probe_receiver(traps: TrapFile) -> None:
    """Probes at every step of a sync on the receiver's side."""
    from live_eval.store.assembly import Assembly
    from live_eval.store.catalogue import Catalogue
    from live_eval.store.directories import StoreDirectories
    from live_eval.store.store import VersionStore
    from live_eval.store.writer import StagedVersion
    from live_eval.subscriber import facade, mail_reader, ray_receiver, receiver
    from protocol.messages import SyncCommit

    def bucket_of(_: Any, header: Any, *__: Any) -> int:
        return header.index

    def commit_only(_: Any, message: Any) -> int | None:
        return 0 if isinstance(message, SyncCommit) else None

    for module in (facade, mail_reader, ray_receiver, receiver):
        module.TICK_S = TICK_S  # pyright: ignore[reportAttributeAccessIssue]
    defaults: Any = VersionStore.open.__func__.__kwdefaults__
    defaults["clock"] = CLOCK
    traps.probe(StagedVersion, "_prepare", "begin")
    traps.probe(StagedVersion, "_allocate", "bucket", bucket_of)
    traps.probe(StagedVersion, "filled", "filled", bucket_of)
    traps.probe(receiver.Receiver, "source_done", "source_done")
    traps.probe(receiver.Receiver, "commit", "commit")
    traps.probe(Assembly, "complete", "seal")
    traps.probe(StoreDirectories, "publish", "rename")
    traps.probe(Catalogue, "mark_sealed", "record")
    traps.probe(receiver.Receiver, "handle", "answer", commit_only)


def run_facade(desk: Desk, config: FacadeConfig) -> None:
    """The receiver process of transport nccl."""
    from live_eval.subscriber import facade

    probe_receiver(start_worker(desk, "receiver"))
    guards.switch_off(desk.without)
    sys.argv = ["facade", *config.arguments()]
    facade.main()


class FaultyRayReceiver(RayReceiver):
    """The receiver actor of transport ray."""

    def __init__(self, config: RayReceiverConfig) -> None:
        desk = Desk(root=config.base.parent)
        probe_receiver(start_worker(desk, "receiver"))
        guards.switch_off(desk.without)
        super().__init__(config)


def run_mail_reader(desk: Desk, config: RayReceiverConfig) -> None:
    """The receiver of transport disk: the actor's class without Ray, since nobody calls it."""
    end_with_parent()
    receiver = FaultyRayReceiver(config)
    name_pid(desk, "ready")
    while True:
        receiver.ping()
        time.sleep(1.0)


def run_service(desk: Desk, socket: Path, store: dict[str, Any]) -> None:
    """What a service does to the store: it claims each version, reads it, and lets it go."""
    from live_eval.store.room import Room

    end_with_parent()
    traps = start_worker(desk, "service")
    traps.probe(Room, "_decide", "collect")  # within a transaction of the catalogue
    asyncio.run(_serve(desk, socket, store))


async def _serve(desk: Desk, socket: Path, settings: dict[str, Any]) -> None:
    from live_eval.channel import ChannelServer
    from live_eval.errors import StoreError
    from live_eval.store import FRESH_OWNER, PinKind, VersionStore

    look = asyncio.Event()

    async def handle(message: Any, connection: Any) -> None:
        look.set()

    with VersionStore.open(desk.store, **settings) as store:
        async with ChannelServer(socket, handle):
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(look.wait(), 0.2)
                look.clear()
                try:
                    for pin in store.pins():
                        if pin.owner != FRESH_OWNER:
                            continue
                        store.pin(pin.policy_version, "job", PinKind.RUNNING)
                        store.unpin(pin.policy_version, FRESH_OWNER)
                        store.verify(pin.policy_version)
                        store.unpin(pin.policy_version, "job")
                    store.collect()
                except StoreError as error:
                    logging.warning("%s", error)


def run_trainer(desk: Desk, connection: Connection, settings: Any) -> None:
    """A life of the trainer."""
    from benchmarks.faults import trainer

    end_with_parent()
    trainer.Trainer(start_worker(desk, "trainer"), settings).serve(connection)
