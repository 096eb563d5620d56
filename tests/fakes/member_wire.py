"""The way from a trainer to a receiver that is a member of its group: in this process, or over Ray."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psutil
from fakes.sync import write_base

from live_eval.errors import LiveEvalError
from live_eval.publisher.sender import LinkError
from live_eval.reasons import DiscardReason
from live_eval.store import BaseCheckpoint, VersionStore
from live_eval.subscriber.group_receiver import GroupReceiver
from live_eval.subscriber.receiver import Receiver
from protocol.codec import decode, encode
from protocol.messages import ErrorReply, Message, ReceiveBucket

if TYPE_CHECKING:
    import numpy as np

    from live_eval.publisher.sender import ReceiverLink

MAX_BYTES = 1 << 30
WAIT_S = 60.0


class Wire(Protocol):
    """A receiver with its store below `root`."""

    link: ReceiverLink
    store: Path

    def get(self, refs: Any) -> Any:
        """As ray.get."""

    def put(self, value: Any) -> Any:
        """As ray.put."""

    def kill(self) -> None:
        """The receiver dies."""

    def revive(self) -> None:
        """It is there again, as another life."""

    def close(self) -> None:
        """The end."""


class LocalLink:
    """Answers from threads of this process; buckets in order, everything else side by side."""

    def __init__(self) -> None:
        self.member: GroupReceiver | None = None
        self.frozen = False
        self.waited_s = 0.0
        """How long it was waited for while it was frozen; nobody really waits."""
        self._calls = ThreadPoolExecutor(8)
        self._buckets = ThreadPoolExecutor(1)

    def put(self, payload: np.ndarray) -> Any:
        raise AssertionError("nothing is put")

    def start(self, message: Message, payload: Any = None) -> Future[Message]:
        member = self.member
        if member is None:
            raise LinkError(DiscardReason.RECEIVER_RESTARTED, "the receiver is gone")
        sent = decode(encode(message))
        if isinstance(sent, ReceiveBucket):
            return self._buckets.submit(_answer, member.receive, sent)
        return self._calls.submit(_answer, member.handle, sent)

    def wait(self, pending: Future[Message], timeout_s: float) -> Message:
        try:
            return pending.result(timeout_s)
        except TimeoutError as error:
            raise LinkError(DiscardReason.PUBLISHER_DEADLINE, "no answer") from error

    def settled(self, pending: Future[Message], timeout_s: float) -> bool:
        if self.frozen:
            pending.result(WAIT_S)  # so that the answer is there when it is thawed
            self.waited_s += timeout_s
            return False
        try:
            pending.result(timeout_s)
        except TimeoutError:
            return False
        return True


def _answer(handle: Any, message: Message) -> Message:
    try:
        return decode(encode(handle(message)))
    except LiveEvalError as error:
        return ErrorReply(code=error.code, message=str(error))


class LocalWire:
    """See Wire."""

    def __init__(self, root: Path, *, deadline_s: float = 5.0) -> None:
        self._base: BaseCheckpoint = write_base(root / "base", tied=True)
        self._deadline_s = deadline_s
        self.store = root / "store"
        self.link = LocalLink()
        self._opened: VersionStore | None = None
        self.revive()

    def get(self, refs: Any) -> Any:
        return refs

    def put(self, value: Any) -> Any:
        return value

    def kill(self) -> None:
        if self.link.member is not None:
            self.link.member.leave_all()
        self.link.member = None
        if self._opened is not None:
            self._opened.close()

    def revive(self) -> None:
        self._opened = VersionStore.open(
            self.store, base=self._base, max_bytes=MAX_BYTES, keep_newest=9, writer=True
        )
        self.link.member = GroupReceiver(Receiver(self._opened, self._base, deadline_s=self._deadline_s))

    def close(self) -> None:
        self.kill()


class RayWire:
    """See Wire; a Ray must run."""

    def __init__(self, root: Path, name: str) -> None:
        import ray

        from live_eval.publisher.ray_link import RayLink
        from live_eval.subscriber.ray_facade import RayFacade
        from live_eval.subscriber.ray_receiver import RayReceiverConfig, start_ray_receiver

        write_base(root / "base", tied=True)
        self._ray = ray
        self.store = root / "store"
        config = RayReceiverConfig(
            store=self.store, base=root / "base", max_bytes=MAX_BYTES, keep_newest=9, deadline_s=5.0
        )
        self._actor: Any = start_ray_receiver(config, name=name, actor_class=RayFacade)
        self.link = RayLink(self._actor)

    def get(self, refs: Any) -> Any:
        return self._ray.get(refs)

    def put(self, value: Any) -> Any:
        return self._ray.put(value)

    def kill(self) -> None:
        pid: Any = self._ray.get(self._actor.__ray_call__.remote(lambda _: os.getpid()), timeout=WAIT_S)
        process = psutil.Process(pid)
        self._ray.kill(self._actor, no_restart=False)
        process.wait(WAIT_S)  # Ray only asks for the death: until then the receiver answers

    def revive(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:  # Ray refuses calls while it restarts the actor
            try:
                self._ray.get(self._actor.ping.remote(), timeout=WAIT_S)
                return
            except self._ray.exceptions.ActorUnavailableError:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def close(self) -> None:
        self._ray.kill(self._actor, no_restart=True)
