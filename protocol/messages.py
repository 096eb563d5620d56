"""Every message of the protocol, with who sends it to whom.

Messages are frozen and keyword-only. Evolution: a new field has a default, a field never
changes its type, a type tag is never reused; TensorMeta is positional and only appends.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from protocol.dtypes import DTYPES

PROTOCOL_VERSION = 1


MAX_NAME_BYTES = 1024
"""UTF-8 bytes of a tensor's name."""
MAX_PID = 2**31 - 1
"""A process's number is a C int."""
MAX_RANK = 64
"""Dimensions of a tensor; torch and numpy end here too."""
MAX_ELEMENTS = 2**53
"""Elements of a tensor stay below: exact in languages whose numbers are doubles."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all messages; a message's name on the wire is the snake_case of its class name."""

    def problem(self) -> str:
        """What makes the values unacceptable beyond their types; empty if nothing does."""
        return ""


class TensorMeta(msgspec.Struct, frozen=True, array_like=True):
    """One tensor of a bucket: HF name, dtype (see protocol.dtypes), shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Size of the tensor's data in bytes; KeyError if the dtype is unknown."""
        size = DTYPES[self.dtype].num_bytes
        for dim in self.shape:
            size *= dim
        return size

    def problem(self) -> str:
        """Why no tensor can be like this; empty if one can."""
        if not self.name or len(self.name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
            return f"a tensor name must have 1 to {MAX_NAME_BYTES} bytes: {self.name[:64]!r}"
        if self.dtype not in DTYPES:
            return f"{self.name[:64]!r} has the unknown dtype {self.dtype[:64]!r}"
        if len(self.shape) > MAX_RANK:
            return f"{self.name[:64]!r} has {len(self.shape)} dimensions, at most {MAX_RANK} are allowed"
        elements = 1
        for dim in self.shape:
            if dim < 0:
                return f"{self.name[:64]!r} has the negative dimension {dim}"
            elements *= max(dim, 1)
        if elements >= MAX_ELEMENTS:
            return f"{self.name[:64]!r} has 2**53 elements or more"
        return ""


# --- a sync: publisher -> receiver ------------------------------------------------------


class SyncBegin(Message, frozen=True, kw_only=True):
    """Publisher, each source: a weight update starts. Answered by SyncAccepted, or SyncOutcome if refused."""

    sync_id: str
    """Unique to this attempt; every later message of the sync carries it."""
    run_id: str
    incarnation_id: str
    """Unique to one life of the trainer; a restarted trainer makes a new one."""
    weight_version: int
    sources: tuple[str, ...]
    """Names of all senders (pipeline ranks); the sync is complete when each is done."""
    num_bytes: int = 0
    """Sum of all tensors' sizes if the publisher knows it, else 0."""
    rollout_id: int | None = None
    train_step: int | None = None
    began_at: float = 0.0
    """Publisher's clock, seconds since the epoch."""
    held_s: float | None = None
    """Seconds for which the sync held the training thread, where that is over before it is begun here."""


class BucketHeader(Message, frozen=True, kw_only=True):
    """Source: what the next bucket holds, in the order in which its bytes travel.

    Answered by BucketStored, or by SyncOutcome once the sync has ended.
    """

    sync_id: str
    source: str
    index: int
    """0, 1, 2, ... per source."""
    weight_version: int
    tensors: tuple[TensorMeta, ...]

    def problem(self) -> str:
        """The first tensor's problem that has one."""
        return next((problem for tensor in self.tensors if (problem := tensor.problem())), "")


class SourceDone(Message, frozen=True, kw_only=True):
    """Source: all its buckets are sent; these are the digests of what it sent.

    Answered by Ok, or by SyncOutcome once the sync has ended.
    """

    sync_id: str
    source: str
    num_buckets: int
    digests: dict[str, str] = {}
    """Tensor name -> xxh3-128 hex of its bytes. Empty where the source cannot hash."""
    held_s: float | None = None
    """Seconds for which the sync held the training thread, where its begin could not say so."""


class SyncCommit(Message, frozen=True, kw_only=True):
    """Publisher: the update is over and whole. Answered by SyncOutcome, when every source is done."""

    sync_id: str
    weight_version: int


class SyncAbort(Message, frozen=True, kw_only=True):
    """Publisher: give the update up. Answered by SyncOutcome."""

    sync_id: str
    reason: str
    detail: str = ""
    held_s: float | None = None
    """Seconds for which the sync held the training thread."""


class SyncGivenUp(Message, frozen=True, kw_only=True):
    """Publisher: this weight version will never be sent; record it. Answered by SyncOutcome.

    Harmless where the receiver knows the sync already: what it recorded then stands.
    """

    sync_id: str
    run_id: str
    incarnation_id: str
    weight_version: int
    reason: str
    detail: str = ""
    rollout_id: int | None = None
    train_step: int | None = None
    held_s: float | None = None
    """Seconds for which the sync held the training thread."""


# --- a sync: receiver -> publisher ------------------------------------------------------


class SyncAccepted(Message, frozen=True, kw_only=True):
    """Receiver: begin is taken; this is the policy version the sync will have if sealed."""

    sync_id: str
    policy_version: int


class BucketStored(Message, frozen=True, kw_only=True):
    """Receiver: the bucket's bytes are in the store; its payload may be freed."""

    sync_id: str
    source: str
    index: int


class SyncOutcome(Message, frozen=True, kw_only=True):
    """Receiver: how the sync ended."""

    sync_id: str
    weight_version: int
    state: Literal["sealed", "discarded"]
    policy_version: int | None = None
    reason: str = ""
    """Empty when sealed, else one of live_eval.reasons.DiscardReason."""
    detail: str = ""
    digest: str = ""
    num_tensors: int = 0
    num_bytes: int = 0


# --- the engine facade: collective publisher -> receiver process ------------------------


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
        if not self.mark.isascii() or not 1 <= len(self.mark) <= MAX_NAME_BYTES:
            return f"a mark has 1 to {MAX_NAME_BYTES} ASCII characters: {self.mark[:64]!r}"
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


class Ok(Message, frozen=True, kw_only=True):
    """The request was carried out and there is nothing else to say."""


class ErrorReply(Message, frozen=True, kw_only=True):
    """Any receiver: the request was refused or failed."""

    code: str
    message: str
    detail: dict[str, str] = {}


# --- the service: driver, receiver or CLI -> service ------------------------------------


class StoreChanged(Message, frozen=True, kw_only=True):
    """Receiver: a version was sealed or discarded; the catalogue says which. One way."""


class TrainingEnded(Message, frozen=True, kw_only=True):
    """Driver: no more syncs will come; drain. Answered by Ok."""


class SubmitCheckpoint(Message, frozen=True, kw_only=True):
    """Anyone: evaluate this checkpoint. Answered by JobsAccepted or ErrorReply."""

    path: str
    datasets: tuple[str, ...] = ()
    """Names of configured datasets; empty means all."""
    priority: int = 0
    """Of the checkpoints that wait the highest runs first."""


class JobsAccepted(Message, frozen=True, kw_only=True):
    """Service: these jobs were made."""

    job_ids: tuple[str, ...]


class CancelJob(Message, frozen=True, kw_only=True):
    """Anyone: this job is wanted no more. Answered by Ok when it was told, before it has ended."""

    job_id: str


class StatusRequest(Message, frozen=True, kw_only=True):
    """Anyone: how is the service? Answered by ServiceStatus."""


class Subscribe(Message, frozen=True, kw_only=True):
    """Anyone: send JobEvent and EngineEvent messages on this connection. Answered by Ok, then them."""


class JobEvent(Message, frozen=True, kw_only=True):
    """Service: a job changed or made progress. Terminal ones are durable before they are sent."""

    job_id: str
    dataset: str
    status: str
    policy_version: int | None = None
    checkpoint: str = ""
    reason: str = ""
    num_done: int = 0
    num_expected: int = 0
    score: float | None = None
    """Of a running job: what the samples scored so far say."""
    score_low: float | None = None
    score_high: float | None = None
    """Its 95 % interval, where one can be given."""
    num_scored: int = 0


class EngineEvent(Message, frozen=True, kw_only=True):
    """Service: an engine changed its state."""

    engine: str
    state: str
    detail: str = ""


class ServiceStatus(Message, frozen=True, kw_only=True):
    """Service: what it is doing now."""

    state: Literal["starting", "serving", "draining", "finished"]
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    stable_version: int | None = None
    num_finished: int = 0
    engines: dict[str, str] = {}


class JobResult(Message, frozen=True, kw_only=True):
    """Service: a finished job as sinks and other programs see it; `result_id` makes repeats harmless."""

    result_id: str
    job_id: str
    dataset: str
    status: str
    reason: str = ""
    detail: str = ""
    """For people: what happened, with the first error where there is one."""
    policy_version: int | None = None
    checkpoint: str = ""
    train_step: int | None = None
    rollout_id: int | None = None
    weight_digest: str = ""
    score: float | None = None
    metrics: dict[str, float] = {}
    partial: dict[str, float] = {}
    """What a job that did not succeed had measured so far; never the target's score."""
    n_expected: int = 0
    n_scored: int = 0
    n_errored: int = 0
    n_aborted: int = 0
    engine_versions: tuple[str, ...] = ()
    """Distinct weight labels that the engines put on the samples."""
    requested_at: float = 0.0
    started_at: float | None = None
    finished_at: float | None = None
    samples_path: str = ""


MESSAGES: tuple[type[Message], ...] = (
    SyncBegin,
    BucketHeader,
    SourceDone,
    SyncCommit,
    SyncAbort,
    SyncGivenUp,
    SyncAccepted,
    BucketStored,
    SyncOutcome,
    JoinGroup,
    LeaveGroup,
    GroupStatusRequest,
    GroupStatus,
    ReceiveBucket,
    MemoryProbe,
    MemoryReach,
    MemoryRange,
    Ok,
    ErrorReply,
    StoreChanged,
    TrainingEnded,
    SubmitCheckpoint,
    JobsAccepted,
    CancelJob,
    StatusRequest,
    Subscribe,
    JobEvent,
    EngineEvent,
    ServiceStatus,
    JobResult,
)

ONE_WAY: tuple[type[Message], ...] = (StoreChanged, JobEvent, EngineEvent)
"""Messages that are never answered, not even by an ErrorReply."""
