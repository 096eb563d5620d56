"""Where a transport's receiver lives: starting it, finding it, waiting for it.

A transport takes part in the bench by an entry in SITES here and one in
`benchmarks.faults.wires.PUBLISHERS`.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.faults.processes import alive, kill, pid_of
from benchmarks.faults.workers import Desk, FaultyRayReceiver, run_facade, run_mail_reader
from benchmarks.local_ray import local_ray
from live_eval.channel import BlockingClient
from live_eval.errors import TransportError
from live_eval.mailbox import Mailbox
from live_eval.subscriber.facade_config import FacadeConfig
from live_eval.subscriber.ray_receiver import RayReceiverConfig
from protocol.messages import GroupStatusRequest

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

START_S = 60.0
OBJECT_STORE_BYTES = 100 << 20
RECEIVER_DEADLINE_S = 1.5


class Site(Protocol):
    """One receiver and what a trainer needs to find it."""

    deadline_s: float
    """The trainer's: how long a sync may wait for a slot."""
    tells: bool
    """Whether a trainer is told what became of each of its syncs."""
    where: dict[str, Any]

    def ensure(self) -> None:
        """Return when the receiver answers; start it if nothing else does."""

    def is_settled(self) -> bool:
        """Whether nothing is on its way to the receiver that its trainer does not know of."""
        ...

    def close(self) -> None:
        """End everything."""


class NcclSite:
    """A facade process, forked ready; this bench is what starts it again."""

    deadline_s = 0.0
    tells = True

    def __init__(
        self, desk: Desk, context: ForkServerContext, service_socket: Path, store: dict[str, Any]
    ) -> None:
        self._desk = desk
        self._context = context
        self._process: BaseProcess | None = None
        self.socket = service_socket.with_name("r")
        self._config = FacadeConfig(
            socket=self.socket,
            store=desk.store,
            base=desk.base,
            service_socket=service_socket,
            deadline_s=RECEIVER_DEADLINE_S,
            **store,
        )
        self.where: dict[str, Any] = {
            "probe_timeout_s": 0.7,
            "prepare_timeout_s": 1.5,
            "group_timeout_s": 1.5,
            "seal_wait_s": 1.0,
            "commit_timeout_s": 5.0,
        }

    def ensure(self) -> None:
        deadline = time.monotonic() + START_S
        with BlockingClient(self.socket) as client:
            while True:
                if self._process is None or not self._process.is_alive():
                    self._process = self._context.Process(
                        target=run_facade, args=(self._desk, self._config), daemon=True
                    )
                    self._process.start()
                try:
                    client.request(GroupStatusRequest(), timeout_s=1.0)
                    return
                except TransportError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)

    def is_settled(self) -> bool:
        return True

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()


class DiskSite:
    """A process that reads a mailbox; this bench is what starts it again."""

    deadline_s = 0.3
    tells = False

    def __init__(
        self, desk: Desk, context: ForkServerContext, service_socket: Path, store: dict[str, Any]
    ) -> None:
        self._desk = desk
        self._context = context
        self._process: BaseProcess | None = None
        self._mail = desk.root / "mail"
        Mailbox(self._mail).make("bench")
        self._config = RayReceiverConfig(
            store=desk.store,
            base=desk.base,
            service_socket=service_socket,
            deadline_s=RECEIVER_DEADLINE_S,
            mail_dir=self._mail,
            **store,
        )
        self.where: dict[str, Any] = {"mail_dir": str(self._mail), "sync_timeout_s": 3.0}

    def ensure(self) -> None:
        deadline = time.monotonic() + START_S
        # By the kernel's word: a process that has just died still counts as alive for multiprocessing.
        while not self._process or not alive(self._process.pid) or not self._is_ready(self._process):
            if self._process is None or not alive(self._process.pid):
                arguments = (self._desk, self._config)
                self._process = self._context.Process(target=run_mail_reader, args=arguments, daemon=True)
                self._process.start()
            if time.monotonic() > deadline:
                raise TransportError("the reader of the mailbox does not start")
            time.sleep(0.01)

    def _is_ready(self, process: BaseProcess) -> bool:
        return pid_of(self._desk, "ready") == process.pid

    def is_settled(self) -> bool:
        return not any(self._mail.glob("life*-pp_0"))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()


class RaySite:
    """A receiver actor in a Ray of the bench's own; Ray starts it again."""

    deadline_s = 0.3
    tells = True

    def __init__(
        self, desk: Desk, context: ForkServerContext, service_socket: Path, store: dict[str, Any]
    ) -> None:
        import ray
        import ray.exceptions

        from live_eval.subscriber import ray_receiver

        self._ray = ray
        self._errors = ray.exceptions
        self._desk = desk
        self._stack = ExitStack()
        node = self._stack.enter_context(local_ray(OBJECT_STORE_BYTES, num_cpus=4, namespace="faults"))
        self._actor: Any = ray_receiver.start_ray_receiver(
            ray_receiver.RayReceiverConfig(
                store=desk.store,
                base=desk.base,
                service_socket=service_socket,
                deadline_s=RECEIVER_DEADLINE_S,
                payload_timeout_s=1.0,
                **store,
            ),
            name="receiver",
            namespace="faults",
            actor_class=FaultyRayReceiver,
        )
        self.where: dict[str, Any] = {
            "address": node.address,
            "namespace": "faults",
            "name": "receiver",
            "temp_dir": node.temp_dir,
            "answer_timeout_s": 1.5,
            "sync_timeout_s": 6.0,
        }

    def ensure(self) -> None:
        deadline = time.monotonic() + START_S
        while True:
            try:
                self._ray.get(self._actor.ping.remote(), timeout=5.0)
                return
            except self._errors.RayError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def is_settled(self) -> bool:
        return True

    def close(self) -> None:
        self._ray.kill(self._actor, no_restart=True)
        pid = pid_of(self._desk, "receiver")
        self._stack.close()
        if pid is not None and alive(pid):
            kill(pid)


SITES: dict[str, Any] = {"disk": DiskSite, "nccl": NcclSite, "ray": RaySite}
"""Transport -> its site's class."""
