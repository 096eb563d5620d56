"""torch.distributed groups that stand beside torch's own registry.

The trainer (rank 0), rollout engines and the receiver meet in such a group. A member that
uses SGLang's `init_custom_process_group`, or torch's helper below it, meets these members:
the keys in the store are the same. Kept out of torch's registry because there a name can be
used once a process, the registry is not made for joins from several threads, and destroying
a group waits for its slowest operation.

Invariant: no wait here is without a deadline, and leaving never waits.
"""

from __future__ import annotations

import socket
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import BroadcastOptions, PrefixStore, ProcessGroupGloo, TCPStore
from torch.distributed.distributed_c10d import Backend, BackendConfig

from live_eval.errors import ConfigError, TransportError

if TYPE_CHECKING:
    from collections.abc import Sequence

POLL_INTERVAL_S = 0.001
BACKENDS = ("gloo", "nccl")
MAX_PORT = 65535
MAX_MEMBERS = 65536


class Rendezvous:
    """The key-value server at which the members of one group meet; rank 0 owns it.

    Listens on `address` only, on a free port.
    """

    def __init__(self, address: str, *, timeout_s: float) -> None:
        listener = socket.create_server((address, 0))
        self.address = address
        self.port: int = listener.getsockname()[1]
        self.store = TCPStore(
            address,
            self.port,
            is_master=True,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )


class Group:
    """Membership in one group. Made by `join_group`, ended by `leave`."""

    def __init__(self, name: str, *, backend: str, rank: int, world_size: int, members: Any) -> None:
        self.name = name
        self.backend = backend
        self.rank = rank
        self.world_size = world_size
        self.device = torch.device("cpu")
        """Where tensors must be to travel in this group."""
        if backend == "nccl":
            self.device = torch.device("cuda", torch.cuda.current_device())
        self._members = members

    def broadcast(self, tensors: Sequence[torch.Tensor], *, timeout_s: float) -> None:
        """Send (rank 0) or receive (others) the bytes of contiguous `tensors`, in order.

        The tensors travel as bytes, so any dtype may, and each side may have a dtype of its own
        of the same total size. Raises TransportError if a member is gone or `timeout_s` is over;
        the group is of no use after that.
        """
        members = self._members  # another thread may leave meanwhile
        if members is None:
            raise TransportError(f"group {self.name}: left already")
        deadline = time.monotonic() + timeout_s
        try:
            works = [members.broadcast([_bytes_of(tensor)], _from_rank_0()) for tensor in tensors]
            for work in works:
                self._wait(work, deadline)
        except RuntimeError as error:
            raise TransportError(f"group {self.name}, rank {self.rank}: broadcast failed: {error}") from error

    def leave(self) -> None:
        """Let go of the group, whatever state it is in. Returns at once."""
        members, self._members = self._members, None
        if members is None:
            return
        box = [members]
        del members
        # The last reference waits for pending operations as it goes, which a frozen peer can
        # draw out until the group's timeout; so it goes in a thread that nobody waits for.
        threading.Thread(
            target=_drop, args=(box, self.backend), name=f"leave-{self.name}", daemon=True
        ).start()

    def _wait(self, work: Any, deadline: float) -> None:
        left = max(deadline - time.monotonic(), POLL_INTERVAL_S)
        work.wait(timedelta(seconds=left))
        while self.backend == "nccl" and not work.is_completed():  # there wait() only orders streams
            if time.monotonic() > deadline:
                raise TransportError(f"group {self.name}, rank {self.rank}: broadcast not over in time")
            time.sleep(POLL_INTERVAL_S)


def join_group(
    *,
    backend: str,
    master_address: str,
    master_port: int,
    rank: int,
    world_size: int,
    group_name: str,
    timeout_s: float,
    rendezvous: Rendezvous | None = None,
) -> Group:
    """Join `group_name` as `rank`; returns when all `world_size` members are there.

    Rank 0 passes the `rendezvous` that it opened. `timeout_s` bounds the join, and later each
    operation in the group. Raises TransportError, naming the group, if the others do not come;
    ConfigError for a backend or rank that cannot be.
    """
    if backend not in BACKENDS:
        raise ConfigError(f"backend {backend!r} is not supported; use one of {', '.join(BACKENDS)}")
    if not 0 <= rank < world_size or (rank == 0) != (rendezvous is not None):
        raise ConfigError(f"rank {rank} of {world_size}: only rank 0 brings the rendezvous")
    if not 0 < master_port <= MAX_PORT or world_size > MAX_MEMBERS:
        raise ConfigError(f"no group of {world_size} members at port {master_port} can be")
    timeout = timedelta(seconds=timeout_s)
    try:
        store = rendezvous.store if rendezvous else _meet(master_address, master_port, world_size, timeout)
        members = _members(
            backend, _keys(store, group_name, backend), rank, world_size, timeout, master_address
        )
    except (RuntimeError, OSError, ValueError) as error:  # the latter two: an address that is none
        raise TransportError(
            f"group {group_name}: rank {rank} of {world_size} could not join at "
            f"{master_address}:{master_port} within {timeout_s:g} s: {error}"
        ) from error
    return Group(group_name, backend=backend, rank=rank, world_size=world_size, members=members)


def _meet(address: str, port: int, world_size: int, timeout: timedelta) -> TCPStore:
    # With its default wait_for_workers a client only counts itself, which a master of torch's own
    # rendezvous waits for.
    return TCPStore(address, port, world_size, is_master=False, timeout=timeout)


def _keys(store: Any, group_name: str, backend: str) -> Any:
    """The part of the store where torch's own helper would look for this group."""
    first_device = next(iter(BackendConfig(getattr(Backend, backend.upper())).get_device_backend_map()))
    return PrefixStore(f"{first_device}/", PrefixStore(f"{group_name}/", PrefixStore(group_name, store)))


def _members(backend: str, store: Any, rank: int, world_size: int, timeout: timedelta, master: str) -> Any:
    if backend == "nccl":
        from torch.distributed import ProcessGroupNCCL

        nccl_options = ProcessGroupNCCL.Options()
        nccl_options._timeout = timeout
        return ProcessGroupNCCL(store, rank, world_size, nccl_options)
    options = ProcessGroupGloo._Options()  # pyright: ignore[reportAttributeAccessIssue]  # missing in torch's stub
    options._timeout = timeout
    options._devices = [ProcessGroupGloo.create_device(hostname=_own_address(master))]
    return ProcessGroupGloo(store, rank, world_size, options)


def _own_address(peer: str) -> str:
    """This host's address on the way to `peer`: loopback stays loopback. Sends nothing."""
    family, kind, proto, _, address = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, proto) as probe:
        probe.connect(address)
        return probe.getsockname()[0]


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's own memory as bytes; it must be contiguous."""
    return tensor.detach().view(-1).view(torch.uint8)


def _from_rank_0() -> BroadcastOptions:
    options = BroadcastOptions()
    options.rootRank = 0
    options.rootTensor = 0
    options.asyncOp = True
    return options


def _drop(box: list[Any], backend: str) -> None:
    if backend == "nccl":
        box[0].abort()
    box.clear()
