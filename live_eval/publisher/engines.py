"""What a collective publisher may update, and the receiver process as one of them.

Invariant: every call has a deadline and raises TransportError only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from live_eval.channel import BlockingClient
from live_eval.errors import PeerError, TransportError
from live_eval.publisher.notes import MAX_UNTOLD, outcome_of
from protocol.errors import ProtocolError
from protocol.messages import (
    BucketHeader,
    GroupStatus,
    GroupStatusRequest,
    JoinGroup,
    LeaveGroup,
    Message,
    ReceiveBucket,
    SourceDone,
    SyncAbort,
    SyncBegin,
    SyncCommit,
    SyncGivenUp,
    SyncOutcome,
)

logger = logging.getLogger(__name__)

JOIN_MARGIN_S = 2.0
"""Waited beyond a member's own deadline, so that its reason arrives and not only silence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Invitation:
    """Where and as whom an engine joins."""

    group_name: str
    master_address: str
    master_port: int
    rank_offset: int
    """Rank of the engine's first member; the others follow."""
    world_size: int
    backend: str
    timeout_s: float


class UpdatableEngine(Protocol):
    """A process, or several, that take part in the trainer's broadcasts."""

    @property
    def name(self) -> str:
        """For logs and errors."""
        ...

    @property
    def num_ranks(self) -> int:
        """How many members of the group it is."""
        ...

    def alive(self, timeout_s: float) -> str:
        """The id of its life, which changes when it is started again and has lost its groups."""
        ...

    def join(self, invitation: Invitation) -> None:
        """Join a group; returns when all members are there."""

    def leave(self, group_name: str, timeout_s: float) -> None:
        """Let the group go."""

    def pause(self, timeout_s: float) -> None:
        """Stop generating."""

    def flush(self, timeout_s: float) -> None:
        """Forget what was computed with the old weights."""

    def receive_bucket(self, header: BucketHeader, group_name: str, timeout_s: float) -> None:
        """Take part in the broadcasts of this bucket's tensors; returns when it has taken them in."""

    def resume(self, timeout_s: float) -> None:
        """Generate again."""


class FacadeEngine:
    """The receiver process (live_eval.subscriber.facade) at its socket.

    Besides an engine's calls it takes the messages of a sync. A sync that it has discarded is
    no error here: it goes on receiving, so that the group is whole, and `outcome` says why.
    """

    num_ranks = 1

    def __init__(self, socket: Path) -> None:
        self.name = f"receiver at {socket}"
        self._client = BlockingClient(socket)
        self._lock = threading.Lock()
        self._untold: deque[SyncGivenUp] = deque(maxlen=MAX_UNTOLD)
        self.outcome: SyncOutcome | None = None
        """How the sync that is under way ended, if it has."""

    def alive(self, timeout_s: float) -> str:
        answer = self._request(GroupStatusRequest(), timeout_s)
        if not isinstance(answer, GroupStatus):
            raise TransportError(f"{self.name} is no receiver: it answered {type(answer).__name__}")
        # Part of its life is which groups it is in: it drops a group that broke under it.
        return f"{answer.instance_id} {' '.join(sorted(answer.groups))}"

    def join(self, invitation: Invitation) -> None:
        request = JoinGroup(
            group_name=invitation.group_name,
            master_address=invitation.master_address,
            master_port=invitation.master_port,
            rank=invitation.rank_offset,
            world_size=invitation.world_size,
            backend=invitation.backend,
            timeout_s=invitation.timeout_s,
        )
        self._request(request, invitation.timeout_s + JOIN_MARGIN_S)

    def leave(self, group_name: str, timeout_s: float) -> None:
        self._request(LeaveGroup(group_name=group_name), timeout_s)

    def pause(self, timeout_s: float) -> None:
        """A receiver generates nothing."""

    def flush(self, timeout_s: float) -> None:
        """A receiver computes nothing."""

    def resume(self, timeout_s: float) -> None:
        """A receiver generates nothing."""

    def receive_bucket(self, header: BucketHeader, group_name: str, timeout_s: float) -> None:
        self._ask(ReceiveBucket(header=header, group_name=group_name), timeout_s)

    # --- the messages of a sync -----------------------------------------------------------

    def begin(self, begin: SyncBegin, timeout_s: float) -> None:
        """Begin a sync."""
        self.outcome = None
        self._ask(begin, timeout_s)

    def finish(self, done: SourceDone, commit: SyncCommit, timeout_s: float) -> SyncOutcome:
        """End this source's part and commit; waits for the other sources."""
        self._ask(done, timeout_s)
        self._ask(commit, timeout_s)
        if self.outcome is None:
            raise TransportError(f"{self.name} answered a commit without an outcome")
        return self.outcome

    def abort(self, abort: SyncAbort, timeout_s: float) -> SyncOutcome:
        """Give the sync up."""
        self._ask(abort, timeout_s)
        if self.outcome is None:
            raise TransportError(f"{self.name} answered an abort without an outcome")
        return self.outcome

    def give_up(self, note: SyncGivenUp) -> None:
        """Remember a version that it will never get; it is told when it answers again."""
        with self._lock:
            self._untold.append(note)

    def tell_given_up(self, timeout_s: float) -> Iterator[SyncOutcome]:
        """Tell all of these now; what is recorded of each."""
        while self._untold:
            note = self._untold[0]
            answer: Message | None = None
            try:
                answer = self._request(note, timeout_s)
            except PeerError as error:  # it is there and refuses: telling again would change nothing
                logger.warning("weight version %d cannot be told: %s", note.weight_version, error)
            with self._lock:
                self._untold.popleft()
            yield answer if isinstance(answer, SyncOutcome) else outcome_of(note)

    def untold(self) -> list[SyncGivenUp]:
        """What has not been told."""
        with self._lock:
            return list(self._untold)

    def close(self) -> None:
        """Close the connection; a sync that is open on it is lost."""
        self._client.close()

    def _ask(self, message: Message, timeout_s: float) -> None:
        answer = self._request(message, timeout_s)
        if isinstance(answer, SyncOutcome):
            self.outcome = answer

    def _request(self, message: Message, timeout_s: float) -> Message:
        try:
            return self._client.request(message, timeout_s=timeout_s)
        except ProtocolError as error:
            raise TransportError(
                f"{type(message).__name__} to {self.name} cannot be sent: {error}"
            ) from error
