"""The receiver actor as a member of the trainer's groups: what is broadcast there, it receives.

The same messages as live_eval.subscriber.facade answers, over Ray. gloo ends this process where a buffer
is smaller than what is sent, and Ray starts it again.
"""

from __future__ import annotations

from live_eval.subscriber.group_receiver import GroupReceiver
from live_eval.subscriber.ray_receiver import IN_ORDER, RayReceiver, RayReceiverConfig


class RayFacade(RayReceiver):
    """The actor's class; `start_ray_receiver(..., actor_class=RayFacade)` makes it one."""

    def __init__(self, config: RayReceiverConfig) -> None:
        super().__init__(config)
        if config.on_gpu:
            _take_gpu()
        self._member = GroupReceiver(self._receiver)

    def request(self, data: bytes) -> bytes:
        """Answer a message that carries no payload."""
        return self._answer(data, self._member.handle)

    def receive(self, data: bytes) -> bytes:
        """Take a bucket of a group; one after the other, beside all other calls."""
        return self._answer(data, self._member.receive)

    receive.__dict__["__ray_concurrency_group__"] = IN_ORDER  # what ray.method(concurrency_group=...) does


def _take_gpu() -> None:
    """NCCL needs a device before the first join; better an error at the start than in a rendezvous."""
    import torch

    torch.cuda.set_device(0)
    torch.zeros(1, device="cuda")
