"""The eval engine group: its engines, what they share, and the leases on them.

Wires engines, pinner and leases; decides nothing about what is evaluated. Invariant: no engine is in two
leases at once, so nobody loads into an engine while somebody else's requests are in flight, and an
engine gets prompts only between a verified pin and the end of that lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.engines.blank import write_blank_weights
from live_eval.engines.engine import Engine, EngineSpec, EngineState, RestartPolicy, StateListener
from live_eval.engines.fingerprint import FingerprintBook, token_ids
from live_eval.engines.launch import read_config, text_config
from live_eval.engines.lease import Lease
from live_eval.engines.lending import Lending
from live_eval.engines.pin import PinLimits, Pinner
from live_eval.errors import ConfigError, EngineDied, EngineError, EngineTimeout
from live_eval.store.base import BaseCheckpoint

if TYPE_CHECKING:
    from live_eval.engines.client import SGLangClient
    from live_eval.engines.fingerprint import Vector

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSettings:
    """Limits of a group; the defaults fit small and large models."""

    limits: PinLimits = field(default_factory=PinLimits)
    restarts: RestartPolicy = field(default_factory=RestartPolicy)
    usable_timeout_s: float = 900.0
    """How long a pin waits for at least one engine that can serve."""
    request_timeout_s: float = 1800.0
    """For one call of prompts; an engine that takes longer is taken for frozen."""
    max_prompts_per_call: int = 32
    """Prompts in one call are 3 to 6 times faster than one by one."""
    max_calls_per_engine: int = 2
    """Full calls at a time, or as many prompts in smaller ones. The second call fills the batch while the
    first waits for its longest answer."""
    allowed_absent: tuple[str, ...] = ()
    """Shell patterns of tensors that a version need not have, for example `model.mtp.*`."""


class EngineGroup:
    """N engines of one model. Create it in an event loop; start(), lease(), ..., close()."""

    def __init__(
        self,
        specs: Sequence[EngineSpec],
        *,
        work_dir: Path,
        log_dir: Path | None = None,
        book: FingerprintBook | None = None,
        settings: GroupSettings | None = None,
        on_state: StateListener | None = None,
        on_load: Callable[[str, str], None] | None = None,
    ) -> None:
        """`work_dir` gets the blank weights, `log_dir` (default: the same) one log per launched engine.

        `on_load` is told the engine's name and the target's label as each load begins.
        """
        if not specs:
            raise ConfigError("an engine group needs at least one engine")
        if len({spec.name for spec in specs}) != len(specs):
            raise ConfigError(f"engine names must differ: {', '.join(spec.name for spec in specs)}")
        if len({spec.model_path.resolve() for spec in specs}) != 1:
            raise ConfigError("all engines of a group must serve the same model_path")
        self.settings = settings or GroupSettings()
        self.model = BaseCheckpoint.read(specs[0].model_path, allowed_absent=self.settings.allowed_absent)
        self._ids = token_ids(_vocab_size(self.model.path))
        self._work_dir = work_dir
        self._book = book if book is not None else FingerprintBook()
        self._on_state = on_state
        self._on_load = on_load
        self._pinner: Pinner | None = None
        self._changed = asyncio.Event()
        self.engines = tuple(
            Engine(
                spec,
                log=(log_dir or work_dir) / f"{spec.name}.log",
                probe=self._probe,
                policy=self.settings.restarts,
                on_state=self._engine_changed,
            )
            for spec in specs
        )
        self._lending = Lending(self.engines)

    @property
    def pinner(self) -> Pinner:
        """Loads and proves versions; EngineError before start()."""
        if self._pinner is None:
            raise EngineError("the engine group is not started")
        return self._pinner

    async def start(self) -> None:
        """Begin to bring all engines up and return; wait_usable() waits for the first."""
        blank = await asyncio.to_thread(
            write_blank_weights, self._work_dir / "blank", self.model.expected().values()
        )
        self._pinner = Pinner(
            model=self.model, blank=blank, ids=self._ids, book=self._book, limits=self.settings.limits
        )
        for engine in self.engines:
            engine.start()

    async def close(self) -> None:
        """End all engines that the group launched, at once."""
        await asyncio.gather(*(engine.close() for engine in self.engines))

    def states(self) -> dict[str, EngineState]:
        """State of each engine by name."""
        return {engine.name: engine.state for engine in self.engines}

    async def wait_usable(self, timeout_s: float, *, among: Sequence[Engine] | None = None) -> None:
        """Return when at least one engine (of `among`) can be pinned; EngineDied if none ever will,
        EngineTimeout."""
        engines = self.engines if among is None else among
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not any(engine.usable for engine in engines):
            states = ", ".join(f"{engine.name} is {engine.state}" for engine in engines)
            if all(engine.state is EngineState.DEAD for engine in engines):
                raise EngineDied(f"no engine is left: {states}; see the engines' logs")
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError as error:
                raise EngineTimeout(f"no engine was ready within {timeout_s:g} s: {states}") from error

    async def lease(self, owner: str, num_engines: int | None = None) -> Lease:
        """Engines for one user alone, all of them or so many; waits, in order, until they are free."""
        engines = await self._lending.take(num_engines)
        logger.debug("engines %s leased to %s", ", ".join(each.name for each in engines), owner)
        return Lease(self, engines, owner=owner, on_release=lambda: self._lending.give_back(engines))

    def load_began(self, engine: Engine, label: str) -> None:
        """A lease begins to load an engine; the engine's next state says how that went."""
        if self._on_load is not None:
            self._on_load(engine.name, label)

    async def _probe(self, client: SGLangClient) -> Vector:
        return await self.pinner.fingerprint(client)

    def _engine_changed(self, name: str, state: EngineState, detail: str) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._lending.look_again()
        if self._on_state is not None:
            self._on_state(name, state, detail)


def _vocab_size(path: Path) -> int:
    size = text_config(read_config(path)).get("vocab_size")
    if not isinstance(size, int):
        raise ConfigError(f"{path}/config.json states no vocab_size")
    return size
