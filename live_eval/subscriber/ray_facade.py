"""The receiver actor as a member of the trainer's groups: what is broadcast there, it receives.

The same messages as live_eval.subscriber.facade answers, over Ray. Invariants: the receives of a
bucket are posted in the order in which buckets were announced, and none waits for an earlier one to
be digested; whatever goes wrong is an answer. gloo ends this process where a buffer is smaller than
what is sent, and Ray starts it again.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING

from live_eval.errors import LiveEvalError
from live_eval.subscriber.group_bucket import receive_broadcast
from live_eval.subscriber.groups import GroupTable
from live_eval.subscriber.ray_receiver import IN_ORDER, RayReceiver, RayReceiverConfig
from protocol.messages import (
    GroupStatus,
    GroupStatusRequest,
    JoinGroup,
    LeaveGroup,
    Message,
    Ok,
    ReceiveBucket,
    SourceDone,
)

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class RayFacade(RayReceiver):
    """The actor's class; `start_ray_receiver(..., actor_class=RayFacade)` makes it one."""

    def __init__(self, config: RayReceiverConfig) -> None:
        super().__init__(config)
        if config.on_gpu:
            _take_gpu()
        self._groups = GroupTable()
        self._digesting = ThreadPoolExecutor(1, thread_name_prefix="facade-digest")
        self._lock = threading.Lock()
        self._filling: dict[tuple[str, str], list[Future[Message]]] = defaultdict(list)
        """(sync, source) -> buckets whose bytes are there and are being digested."""

    def request(self, data: bytes) -> bytes:
        """Answer a message that carries no payload."""
        return self._answer(data, self._handle)

    def receive(self, data: bytes) -> bytes:
        """Take a bucket of a group; one after the other, beside all other calls."""
        return self._answer(data, self._receive)

    receive.__dict__["__ray_concurrency_group__"] = IN_ORDER  # what ray.method(concurrency_group=...) does

    def _handle(self, message: Message) -> Message:
        match message:
            case GroupStatusRequest():
                return GroupStatus(instance_id=self._receiver.instance_id, groups=self._groups.names)
            case JoinGroup():
                self._groups.join(message)
                return Ok()
            case LeaveGroup():
                self._groups.leave(message.group_name)
                return Ok()
            case SourceDone():
                self._settle(message.sync_id, message.source)
        return self._receiver.handle(message)

    def _receive(self, message: Message) -> Message:
        assert isinstance(message, ReceiveBucket)
        judge = receive_broadcast(self._receiver, self._groups, message)
        key = (message.header.sync_id, message.header.source)
        with self._lock:
            if not message.header.index:  # earlier syncs of this source that nobody ended
                for old in [known for known in self._filling if known[1] == key[1]]:
                    del self._filling[old]
            self._filling[key].append(self._digesting.submit(_safely(judge)))
        return Ok()

    def _settle(self, sync_id: str, source: str) -> None:
        """Wait until the source's buckets are digested."""
        with self._lock:
            pending = self._filling.pop((sync_id, source), [])
        wait_for(pending)


def _safely(judge: Callable[[], Message]) -> Callable[[], Message]:
    """A bucket that is no use has ended its sync already, or belongs to none."""

    def judged() -> Message:
        try:
            return judge()
        except LiveEvalError as error:
            logger.info("a bucket that belongs to no sync: %s", error)
            return Ok()

    return judged


def _take_gpu() -> None:
    """NCCL needs a device before the first join; better an error at the start than in a rendezvous."""
    import torch

    torch.cuda.set_device(0)
    torch.zeros(1, device="cuda")
