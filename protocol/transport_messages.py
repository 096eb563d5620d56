"""How the bytes of a sync travel: in a torch.distributed group, or read out of the sender's memory."""

from __future__ import annotations

from protocol.message import Message
from protocol.sync_messages import BucketHeader

MAX_MARK_CHARACTERS = 1024
MAX_PID = 2**31 - 1
"""A process's number is a C int."""


# --- a group: collective publisher -> receiver process -----------------------------------


class JoinGroup(Message, frozen=True, kw_only=True):
    """Publisher: join this torch.distributed group as `rank`; the source is rank 0. Answered by Ok."""

    group_name: str
    master_address: str
    master_port: int
    rank: int
    world_size: int
    backend: str
    timeout_s: float


class LeaveGroup(Message, frozen=True, kw_only=True):
    """Publisher: drop the group, whatever state it is in. Answered by Ok, also if there is none."""

    group_name: str


class GroupStatusRequest(Message, frozen=True, kw_only=True):
    """Publisher: are you there, and in which groups? Answered by GroupStatus."""


class GroupStatus(Message, frozen=True, kw_only=True):
    """Receiver process: its life (a restarted process has another id) and the groups it is in."""

    instance_id: str
    groups: tuple[str, ...] = ()


class ReceiveBucket(Message, frozen=True, kw_only=True):
    """Publisher: the bucket is about to be broadcast on this group; post the receives.

    Answered as its header would be, when the bytes have arrived.
    """

    header: BucketHeader
    group_name: str

    def problem(self) -> str:
        """The header's problem."""
        return self.header.problem()


# --- one host's memory: publisher -> receiver, and its answer ----------------------------


class MemoryProbe(Message, frozen=True, kw_only=True):
    """Publisher: can you read my memory? Answered by MemoryReach."""

    pid: int
    address: int
    """Where `mark` stands."""
    mark: str
    """ASCII, in no other process's memory."""
    payload: int
    """Address of a byte that must be readable too."""

    def problem(self) -> str:
        """What makes these no addresses of a process."""
        if not self.mark.isascii() or not 1 <= len(self.mark) <= MAX_MARK_CHARACTERS:
            return f"a mark has 1 to {MAX_MARK_CHARACTERS} ASCII characters: {self.mark[:64]!r}"
        return _address_problem(self.pid, self.address) or _address_problem(self.pid, self.payload)


class MemoryReach(Message, frozen=True, kw_only=True):
    """Receiver: whether it can, and which process would have to be allowed to."""

    pid: int
    reads: bool
    forbidden_in: str = ""
    """Where `pid` counts (system and namespace), if the system forbade it; empty if it failed otherwise."""

    def problem(self) -> str:
        """What makes this no process; as a permission 0 and -1 would mean nobody and everybody."""
        return _process_problem(self.pid)


class MemoryRange(Message, frozen=True, kw_only=True):
    """Publisher: where a bucket's payload lies, in the place of an object reference.

    The bytes stay as they are until the bucket is answered.
    """

    pid: int
    address: int
    num_bytes: int

    def problem(self) -> str:
        """What makes this no memory of a process."""
        if self.num_bytes < 0:
            return f"a payload of {self.num_bytes} bytes"
        return _address_problem(self.pid, self.address)


def _address_problem(pid: int, address: int) -> str:
    return _process_problem(pid) or ("" if address > 0 else f"process {pid} has no memory at {address}")


def _process_problem(pid: int) -> str:
    return "" if 0 < pid <= MAX_PID else f"no process has the number {pid}"
