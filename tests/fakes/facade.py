"""A facade process in a test: started, asked, killed, started again."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fakes.sync import write_base

from live_eval.channel import BlockingClient
from live_eval.collective import Rendezvous, join_group
from live_eval.errors import TransportError
from live_eval.publisher.engines import FacadeEngine
from live_eval.store import BaseCheckpoint, VersionStore
from live_eval.subscriber.facade_config import FacadeConfig
from protocol.messages import (
    BucketHeader,
    ErrorReply,
    GroupStatusRequest,
    JoinGroup,
    Message,
    ReceiveBucket,
    TensorMeta,
)

REPO = Path(__file__).parents[2]
START_S = 60.0


class FacadeProcess:
    """`python -m live_eval.subscriber.facade` over a store in `root`."""

    def __init__(self, root: Path, *, base: Path | None = None, **settings: Any) -> None:
        if base is None:
            base = root / "base"
            write_base(base, tied=True)
        self.root = root
        self.config = FacadeConfig(
            socket=Path(tempfile.mkdtemp(prefix="f", dir="/tmp")) / "s",
            store=root / "store",
            base=base,
            **({"max_bytes": 1 << 30, "keep_newest": 100, "deadline_s": 4.0} | settings),
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        argv = [sys.executable, "-m", "live_eval.subscriber.facade", *self.config.arguments()]
        with (self.root / "facade.log").open("ab") as log:
            self._process = subprocess.Popen(argv, cwd=REPO, stdout=log, stderr=log)
        deadline = time.monotonic() + START_S
        with BlockingClient(self.config.socket) as client:
            while True:
                try:
                    client.request(GroupStatusRequest(), timeout_s=1.0)
                    return
                except TransportError:
                    assert self._process.poll() is None, self.log()
                    assert time.monotonic() < deadline, self.log()
                    time.sleep(0.05)

    def log(self) -> str:
        """What it has logged."""
        return (self.root / "facade.log").read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal and, if it kills, wait for the end."""
        assert self._process is not None
        self._process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._process.wait(20.0)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stopped for as long as the body runs."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def wait(self, timeout_s: float) -> int:
        """Exit status, once it has ended."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def close(self) -> None:
        """End it, whatever state it is in."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(20.0)
        shutil.rmtree(self.config.socket.parent)

    # --- its store, as another process sees it --------------------------------------------

    def read(self, question: Callable[[VersionStore], Any]) -> Any:
        """Ask the store as the service would."""
        with VersionStore.open(self.root / "store", max_bytes=1 << 30, keep_newest=100) as store:
            return question(store)

    def reasons(self, life: str) -> list[tuple[int, str]]:
        """Weight version and reason of what was discarded in a trainer's life."""
        found = self.read(lambda store: store.discarded())
        return [(record.weight_version, record.reason) for record in found if record.incarnation_id == life]

    def sealed(self, life: str) -> list[int]:
        """Weight versions that are sealed; each is verified."""

        def ask(store: VersionStore) -> list[int]:
            numbers = {i.number for i in store.incarnations() if i.incarnation_id == life}
            records = [record for record in store.sealed() if record.incarnation in numbers]
            for record in records:
                store.verify(record.policy_version)
            return [record.weight_version for record in records]

        return self.read(ask)

    def content(self, policy_version: int, tensor: TensorMeta) -> bytes:
        """A tensor's bytes in a sealed version."""
        found = np.empty(tensor.num_bytes, dtype=np.uint8)
        path = self.read(lambda store: store.path(policy_version))
        BaseCheckpoint.read(path).copy_tensor(tensor.name, found)
        return found.tobytes()


class FacadePlayer:
    """Rank 0 of a group with one facade, sending by hand."""

    def __init__(
        self, facade: FacadeProcess, *, group_name: str = "by-hand", timeout_s: float = 20.0
    ) -> None:
        self._client = BlockingClient(facade.config.socket)
        self._threads = ThreadPoolExecutor(2)
        self._timeout_s = timeout_s
        rendezvous = Rendezvous("127.0.0.1", timeout_s=timeout_s)
        request = JoinGroup(
            group_name=group_name,
            master_address="127.0.0.1",
            master_port=rendezvous.port,
            rank=1,
            world_size=2,
            backend="gloo",
            timeout_s=timeout_s,
        )
        joined = self._threads.submit(self.ask, request)
        self._group = join_group(
            backend="gloo",
            master_address="127.0.0.1",
            master_port=rendezvous.port,
            rank=0,
            world_size=2,
            group_name=group_name,
            timeout_s=timeout_s,
            rendezvous=rendezvous,
        )
        assert not isinstance(joined.result(), ErrorReply)

    def ask(self, message: Message) -> Message:
        """Send a message; an error is an answer here."""
        try:
            return self._client.request(message, timeout_s=self._timeout_s + 10.0)
        except TransportError as error:
            return ErrorReply(code=error.code, message=str(error))

    def bucket(self, header: BucketHeader, data: Sequence[np.ndarray]) -> Message:
        """Announce a bucket and broadcast these bytes, whatever the header says."""
        answer = self._threads.submit(self.ask, ReceiveBucket(header=header, group_name=self._group.name))
        self._group.broadcast([torch.from_numpy(part) for part in data], timeout_s=self._timeout_s)
        return answer.result()

    def close(self) -> None:
        """Leave."""
        self._group.leave()
        self._client.close()
        self._threads.shutdown(wait=False)


def facade_engine(facade: FacadeProcess) -> FacadeEngine:
    """The facade as a publisher sees it."""
    return FacadeEngine(facade.config.socket)
