"""Who is in the trainer's group, made sure of before each sync.

Asks first and joins after: whoever does not answer is left out, and the group is built anew
when who answers has changed, or is living another life. Invariants: no wait is without a
deadline; a group's name is never used twice; after `members` returns, everyone in it was
alive a moment ago and in the group.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING

from live_eval.collective import Group, Rendezvous, join_group
from live_eval.errors import TransportError
from live_eval.publisher.engines import JOIN_MARGIN_S, Invitation, UpdatableEngine

if TYPE_CHECKING:
    from live_eval.publisher.collective import CollectiveConfig

logger = logging.getLogger(__name__)


class Membership:
    """The group of rank 0 and the engines that are in it."""

    def __init__(
        self, engines: Sequence[UpdatableEngine], config: CollectiveConfig, threads: ThreadPoolExecutor
    ) -> None:
        self._engines = tuple(engines)
        self._config = config
        self._threads = threads
        self._group: Group | None = None
        self._lives: dict[str, str] = {}
        """Engine name -> its life, for those in the group."""
        self._num_groups = 0

    @property
    def group(self) -> Group | None:
        """The group that stands; None if nobody is in it or it broke."""
        return self._group

    def members(self, *, without: Collection[UpdatableEngine] = ()) -> list[UpdatableEngine]:
        """Engines that are in the group now, after leaving the dead out and taking the living in."""
        candidates = [engine for engine in self._engines if engine not in without]
        while candidates:
            lives = self._lives_of(candidates)
            candidates = [engine for engine in candidates if engine.name in lives]
            if self._group is not None and lives == self._lives:
                return candidates
            self.leave(candidates)
            guilty = self._build(candidates) if candidates else None
            if guilty is None:
                return candidates
            # When one does not come all joins fail: it is who does not answer any more, or else,
            # so that this comes to an end, who failed first.
            still = self._lives_of(candidates)
            if len(still) == len(candidates):
                del still[guilty.name]
            candidates = [engine for engine in candidates if engine.name in still]
        self.leave(())
        return []

    def leave(self, engines: Sequence[UpdatableEngine] | None = None) -> None:
        """Let the group go, and tell the engines; they may be dead, so it is told and not waited for long."""
        group, self._group, self._lives = self._group, None, {}
        if group is None:
            return
        group.leave()
        timeout_s = self._config.probe_timeout_s
        told = self.each(
            self._engines if engines is None else engines, lambda e: e.leave(group.name, timeout_s)
        )
        for engine, error in failures(told):
            logger.info("%s did not leave group %s: %s", engine.name, group.name, error)

    def each(
        self, engines: Sequence[UpdatableEngine], work: Callable[[UpdatableEngine], object]
    ) -> dict[UpdatableEngine, Future[object]]:
        """Do it to all engines side by side, and wait until each is done or has failed."""
        futures = {engine: self._threads.submit(work, engine) for engine in engines}
        wait_for(futures.values())
        return futures

    def _lives_of(self, engines: Sequence[UpdatableEngine]) -> dict[str, str]:
        lives: dict[UpdatableEngine, str] = {}

        def ask(engine: UpdatableEngine) -> None:
            lives[engine] = engine.alive(self._config.probe_timeout_s)

        for engine, error in failures(self.each(engines, ask)):
            logger.warning("%s does not answer and is left out: %s", engine.name, error)
        return {engine.name: lives[engine] for engine in engines if engine in lives}

    def _build(self, engines: Sequence[UpdatableEngine]) -> UpdatableEngine | None:
        """Have all join a new group; the first one that did not, or None if all did."""
        config = self._config
        self._num_groups += 1
        name = f"{config.group_name}.{self._num_groups}"
        began = time.monotonic()
        rendezvous = Rendezvous(config.address, timeout_s=config.group_timeout_s)
        world_size = 1 + sum(engine.num_ranks for engine in engines)
        failed: list[UpdatableEngine] = []
        joins = self._invite(engines, name, rendezvous.port, world_size, failed)
        try:
            self._group = join_group(
                backend=config.backend,
                master_address=config.address,
                master_port=rendezvous.port,
                rank=0,
                world_size=world_size,
                group_name=name,
                timeout_s=config.group_timeout_s,
                rendezvous=rendezvous,
            )
        except TransportError as error:
            logger.warning("%s", error)
        late = wait_for(joins, timeout=JOIN_MARGIN_S).not_done
        if self._group is None or late or failed:
            self.leave(engines)
            return failed[0] if failed else engines[-1]
        self._lives = self._lives_of(engines)
        logger.info(
            "group %s: %s, %d ranks, %.2f s", name, list(self._lives), world_size, time.monotonic() - began
        )
        return next((engine for engine in engines if engine.name not in self._lives), None)

    def _invite(
        self,
        engines: Sequence[UpdatableEngine],
        name: str,
        port: int,
        world_size: int,
        failed: list[UpdatableEngine],
    ) -> list[Future[None]]:
        """Ask all to join, without waiting; who cannot is added to `failed`."""

        def join(engine: UpdatableEngine, invitation: Invitation) -> None:
            try:
                engine.join(invitation)
            except TransportError as error:
                logger.warning("%s did not join: %s", engine.name, error)
                failed.append(engine)

        joins: list[Future[None]] = []
        rank = 1
        for engine in engines:
            invitation = Invitation(
                group_name=name,
                master_address=self._config.address,
                master_port=port,
                rank_offset=rank,
                world_size=world_size,
                backend=self._config.backend,
                timeout_s=self._config.group_timeout_s,
            )
            joins.append(self._threads.submit(join, engine, invitation))
            # Engines differ in size, so a rank follows from the sizes of those before.
            rank += engine.num_ranks
        return joins


def failures(futures: dict[UpdatableEngine, Future[object]]) -> list[tuple[UpdatableEngine, TransportError]]:
    """Engines whose call failed, with the error; any other exception than TransportError is raised."""
    found: list[tuple[UpdatableEngine, TransportError]] = []
    for engine, future in futures.items():
        error = future.exception()
        if isinstance(error, TransportError):
            found.append((engine, error))
        elif error is not None:
            raise error
    return found
