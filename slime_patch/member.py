"""live-eval's receiver as one more engine in the list of slime's distributed updater.

    updater.connect_rollout_engines(engines, ...)   the receiver is appended, if it answers
    before each update                              left out or taken in again, if that has changed

Only the list of this rank's updater is longer; slime's RolloutManager, its engines and its own calls know
nothing of it. Invariants: what slime waits for here is always ready, so nothing that the receiver does or
fails to do raises in slime's calls; outside an update a receiver that is gone costs one question and a new
group. Within one it is a member of the group like any engine.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from live_eval.publisher.sender import LinkError
from protocol.errors import ProtocolError
from protocol.messages import GroupStatus, GroupStatusRequest, JoinGroup, LeaveGroup, Message, Ok, TensorMeta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from live_eval.publisher.sender import ReceiverLink

logger = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 3.0
JOIN_TIMEOUT_S = 1800.0
"""torch's own, which slime's engines have too: never less patient than they are."""
LOCK_POLL_S = 0.1


class Announce(Protocol):
    """These tensors are broadcast in the group next."""

    def __call__(self, tensors: tuple[TensorMeta, ...], *, weight_version: int, group_name: str) -> None: ...


class Call:
    """engine.method.remote(...), answered at once by a reference that is ready."""

    def __init__(self, act: Callable[..., None], ready: Callable[[], Any]) -> None:
        self._act = act
        self._ready = ready

    def remote(self, *values: Any, **named: Any) -> Any:
        """As Ray's; never raises."""
        try:
            self._act(*values, **named)
        except (LinkError, ProtocolError, KeyError) as error:
            logger.warning("the receiver could not be told: %s", error)
        return self._ready()


class ReceiverEngine:
    """Takes slime's calls of an engine; `ready` makes what slime's ray.get takes."""

    def __init__(self, link: ReceiverLink, announce: Announce, *, ready: Callable[[], Any]) -> None:
        def nothing(*_: Any, **__: Any) -> None:
            """It generates nothing and has nothing to prepare."""

        for name in ("pause_generation", "flush_cache", "continue_generation", "post_process_weights"):
            setattr(self, name, Call(nothing, ready))
        self._link = link
        self._announce = announce
        self.joining: Any = None
        """The pending answer to the last join."""
        self.init_weights_update_group = Call(self._join, ready)
        self.destroy_weights_update_group = Call(self._leave, ready)
        self.update_weights_from_distributed = Call(self._receive, ready)

    def _join(
        self,
        *,
        master_address: str,
        master_port: int,
        rank_offset: int,
        world_size: int,
        group_name: str,
        backend: str,
    ) -> None:
        request = JoinGroup(
            group_name=group_name,
            master_address=master_address,
            master_port=master_port,
            rank=rank_offset,
            world_size=world_size,
            backend=backend,
            timeout_s=JOIN_TIMEOUT_S,
        )
        self.joining = None
        self.joining = self._link.start(request)

    def _leave(self, group_name: str) -> None:
        self._link.start(LeaveGroup(group_name=group_name))

    def _receive(
        self,
        *,
        names: Sequence[str],
        dtypes: Sequence[Any],
        shapes: Sequence[Sequence[int]],
        group_name: str,
        weight_version: str,
        **_: Any,
    ) -> None:
        tensors = tuple(
            TensorMeta(name, str(dtype).removeprefix("torch."), tuple(shape))
            for name, dtype, shape in zip(names, dtypes, shapes, strict=True)
        )
        self._announce(tensors, weight_version=int(weight_version), group_name=group_name)


@dataclass(frozen=True, slots=True)
class _Engines:
    """What slime connected last."""

    engines: list[Any]
    lock: Any
    counts: list[int]
    offsets: list[int] | None
    configs: list[Any] | None


class MemberSeat:
    """The receiver's place in one updater. `get` waits for a Ray reference."""

    def __init__(
        self, updater: Any, engine: ReceiverEngine, link: ReceiverLink, *, get: Callable[[Any], Any]
    ) -> None:
        self._updater = updater
        self._engine = engine
        self._link = link
        self._get = get
        self._connect = updater.connect_rollout_engines
        updater.connect_rollout_engines = self._connected
        self._known: _Engines | None = None
        self._life: str | None = None
        """Of the receiver that is in the group; None: it is left out."""
        self._asked: Any = None
        """A question that a receiver has not answered yet."""
        self._groups: tuple[str, ...] = ()
        """That it was in when it last answered."""

    @property
    def taken(self) -> bool:
        """Whether the receiver is in the group."""
        return self._life is not None

    def make_sure(self) -> None:
        """Before an update: leave a receiver that is gone, take one that is back."""
        if self._known is None or not getattr(self._updater, "_is_pp_src_rank", False):
            return
        life = self._ask()
        lost = life is not None and self._updater._group_name not in self._groups
        if life != self._life or lost:
            logger.warning("the receiver %s: the group is built anew", "is back" if life else "is gone")
            with self._all_engines():
                self._build(life)

    def leave(self) -> None:
        """The receiver has fallen silent before a bucket was sent: build the group without it."""
        if self._life is not None:
            with self._all_engines():
                self._build(None)

    # --- slime's call ---------------------------------------------------------------------

    def _connected(
        self,
        rollout_engines: Sequence[Any],
        rollout_engine_lock: Any,
        engine_gpu_counts: Sequence[int] | None = None,
        engine_gpu_offsets: Sequence[int] | None = None,
        engine_parallel_configs: Sequence[Any] | None = None,
    ) -> None:
        engines = list(rollout_engines)
        each = self._updater.args.rollout_num_gpus_per_engine
        self._known = _Engines(
            engines,
            rollout_engine_lock,
            [each] * len(engines) if engine_gpu_counts is None else list(engine_gpu_counts),
            None if engine_gpu_offsets is None else list(engine_gpu_offsets),
            None if engine_parallel_configs is None else list(engine_parallel_configs),
        )
        self._build(self._ask())

    def _build(self, life: str | None) -> None:
        known = self._known
        assert known is not None
        extra = life is not None
        self._life = None  # if joining fails, slime's error comes out and nobody is a member
        self._connect(
            [*known.engines, self._engine] if extra else known.engines,
            known.lock,
            engine_gpu_counts=[*known.counts, 1] if extra else known.counts,
            engine_gpu_offsets=known.offsets,
            engine_parallel_configs=known.configs,
        )
        if extra and not self._has_joined():
            logger.warning("the receiver did not join and is left out")
            self._build(None)
            return
        self._life = life

    def _has_joined(self) -> bool:
        """The group stands, so that it must have joined; it may say so a moment later."""
        try:
            return isinstance(self._link.wait(self._engine.joining, PROBE_TIMEOUT_S), Ok)
        except (LinkError, ProtocolError) as error:
            logger.info("the receiver did not join: %s", error)
            return False

    def _ask(self) -> str | None:
        """The life of the receiver, or None if it does not answer; one question is out at a time."""
        if self._asked is not None:
            life, answered = self._answered(0.0)
            if life is not None or not answered:
                return life
        return self._answered(PROBE_TIMEOUT_S)[0]

    def _answered(self, patience_s: float) -> tuple[str | None, bool]:
        """The life that the receiver answers with, if it does, and whether the question is settled."""
        try:
            if self._asked is None:
                self._asked = self._link.start(GroupStatusRequest())
            if not self._link.settled(self._asked, patience_s):
                return None, False
            asked, self._asked = self._asked, None
            answer: Message = self._link.wait(asked, PROBE_TIMEOUT_S)
        except (LinkError, ProtocolError) as error:
            logger.info("the receiver does not answer: %s", error)
            return None, True
        if not isinstance(answer, GroupStatus):
            return None, True
        self._groups = answer.groups
        return answer.instance_id, True

    @contextmanager
    def _all_engines(self) -> Iterator[None]:
        """Pipeline ranks that join engines in opposite orders would wait for each other for ever."""
        lock = self._known.lock if self._known else None
        while not self._get(lock.acquire.remote()):  # pyright: ignore[reportOptionalMemberAccess]
            time.sleep(LOCK_POLL_S)
        try:
            yield
        finally:
            self._get(lock.release.remote())  # pyright: ignore[reportOptionalMemberAccess]
