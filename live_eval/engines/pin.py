"""Putting a version into one engine, and proving that it is there.

The order of steps is design: headers, since a file that does not fit kills the server; abort and flush,
since a load into a busy one dies on an assertion; blank; the content's check, since NaN is taken in
silence; load, label, fingerprint. A server that has answered may still be busy, so each load that
follows a request is preceded by a flush, a fingerprint's included. Knows one engine at a time and keeps
no state but the book.

Invariant: `Pinner.pin` returns only if the engine's label is the target's, no old weight survived
the load, and its fingerprint is finite and equal to that of every earlier load of the digest. When
it raises an EngineError, what the engine holds is unknown, and the caller must not use it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.engines.fingerprint import FingerprintBook, Vector, distance, is_finite, tolerance
from live_eval.errors import ConfigError, CorruptVersion, PinMismatch
from live_eval.store.checkpoint import read_config, read_headers

if TYPE_CHECKING:
    from live_eval.engines.blank import BlankWeights
    from live_eval.engines.client import SGLangClient
    from live_eval.store.base import BaseCheckpoint

logger = logging.getLogger(__name__)

UNLOADED_LABEL = "default"
"""SGLang's label before any load; never the label of a version."""
BLANK_LABEL = "live-eval-blank"
"""The label while an engine holds no version."""


def no_further_check() -> None:
    """For a target whose files somebody has checked already."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PinTarget:
    """What to put into the engines."""

    label: str
    """str(policy_version), or `ckpt-<key>`."""
    path: Path
    """A checkpoint directory on this host."""
    digest: str = ""
    """The version's digest; empty where nobody computed one, then no earlier load is known."""
    verify: Callable[[], None] = no_further_check
    """Checks the files' content (digests, NaN) and raises StoreError; runs in a thread."""

    def __post_init__(self) -> None:
        if self.label in ("", UNLOADED_LABEL, BLANK_LABEL):
            raise ConfigError(
                f"{self.label!r} cannot be the label of a version: an engine without one has it"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class PinLimits:
    """How long each step may take."""

    flush_s: float = 30.0
    """For an aborted engine to become idle."""
    load_s: float = 600.0
    """For one load. With tensor parallelism a rank that fails leaves the others in a barrier."""
    fingerprint_s: float = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """What an engine was last seen to hold."""

    vector: Vector
    digest: str = ""
    """Empty for the weights that a server was launched with."""
    checksum: str = ""
    """SGLang's own over all its weights; empty where the server has none to give."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EnginePin:
    """One engine's verified pin."""

    held: Held
    label: str
    load_s: float
    """Becoming idle and all loads, blank ones too, and what the content's check took longer than these."""
    fingerprint_s: float
    """One fingerprint."""
    moved: float
    """Distance to the fingerprint that the engine had before, in nats."""
    known: bool
    """Whether an earlier load of the digest was compared with."""


@dataclass(frozen=True, kw_only=True)
class Pinner:
    """Loads and proves versions of one model."""

    model: BaseCheckpoint
    """The checkpoint that the engines were launched with."""
    blank: BlankWeights
    ids: tuple[int, ...]
    """The fingerprint's tokens."""
    book: FingerprintBook
    limits: PinLimits = field(default_factory=PinLimits)

    async def check_headers(self, target: PinTarget) -> float:
        """Check the files' headers, at once; returns the seconds it took. CorruptVersion."""
        began = time.monotonic()
        await asyncio.to_thread(self._fits, target.path)
        return time.monotonic() - began

    async def check_content(self, target: PinTarget) -> float:
        """Check every byte, as long as reading takes; the seconds. Raises what `target.verify` raises."""
        began = time.monotonic()
        await asyncio.to_thread(target.verify)
        return time.monotonic() - began

    async def fingerprint(self, client: SGLangClient) -> Vector:
        """The engine's log-probs of the fixed tokens, NaN where it has NaN."""
        (vector,) = await client.logprobs([self.ids], timeout_s=self.limits.fingerprint_s)
        return tuple(vector)

    async def pin(
        self,
        client: SGLangClient,
        target: PinTarget,
        *,
        before: Held,
        flavour: str,
        checking: asyncio.Task[float] | None = None,
    ) -> EnginePin:
        """Load the target into an engine that nobody else sends to, and prove it.

        `checking`: the check of its content, where that goes on while the engine is made ready; what it
        raises is raised here, and the engine has not seen the files.
        EngineTimeout: it did not become idle. LoadFailed, PinMismatch, EngineDied: see the class.
        """
        began = time.monotonic()
        await client.abort_all()
        await self._blank(client)
        if checking is not None:
            await asyncio.shield(checking)  # other engines wait for it too
        vector, fingerprint_s = await self._load(client, target)
        checksum = await self._checksum(client, target, flavour) if before.checksum else ""
        near = tolerance(flavour.split("/")[1])
        moved = distance(vector, before.vector)
        if moved <= near and not (target.digest and target.digest == before.digest):
            vector = await self._load_visibly(client, target, vector, near)
        known = self.book.get(target.digest, flavour)
        if known is not None and (apart := distance(vector, known)) > near:
            raise PinMismatch(
                f"engine {client.name} after loading {target.label!r}: its log-probs are {apart:.3g} from "
                f"those of an earlier load of {target.digest} (allowed {near:g})"
            )
        return EnginePin(
            held=Held(vector=vector, digest=target.digest, checksum=checksum),
            label=target.label,
            load_s=time.monotonic() - began - fingerprint_s,
            fingerprint_s=fingerprint_s,
            moved=moved,
            known=known is not None,
        )

    async def check(self, client: SGLangClient, target: PinTarget, *, held: Held, flavour: str) -> None:
        """Prove that an idle engine still holds what it was pinned to; PinMismatch if it does not."""
        await self._check_label(client, target)
        near = tolerance(flavour.split("/")[1])
        if (apart := distance(await self.fingerprint(client), held.vector)) > near:
            raise PinMismatch(
                f"engine {client.name} no longer computes {target.label!r}: its log-probs are {apart:.3g} "
                f"from those after the load (allowed {near:g})"
            )
        now = await client.checksum(timeout_s=self.limits.fingerprint_s) if held.checksum else ""
        if now != held.checksum:
            raise PinMismatch(
                f"engine {client.name} no longer holds {target.label!r}: its checksum is {now or 'none'}, "
                f"after the load it was {held.checksum}"
            )

    async def _checksum(self, client: SGLangClient, target: PinTarget, flavour: str) -> str:
        """The server's own checksum, equal to that of every earlier load of the digest."""
        checksum = await client.checksum(timeout_s=self.limits.fingerprint_s)
        known = self.book.checksum(target.digest, flavour)
        if not checksum or (known and checksum != known):
            raise PinMismatch(
                f"engine {client.name} after loading {target.label!r}: its checksum is {checksum or 'none'}, "
                f"of an earlier load of {target.digest} it was {known or 'not taken'}"
            )
        return checksum

    async def _blank(self, client: SGLangClient) -> None:
        """Flush, and replace what the engine holds by NaN."""
        await client.flush_until_idle(deadline_s=self.limits.flush_s)
        await client.load_from_disk(self.blank.nan_dir, BLANK_LABEL, timeout_s=self.limits.load_s)

    async def _load(self, client: SGLangClient, target: PinTarget) -> tuple[Vector, float]:
        """Load onto blank weights, compare label; the fingerprint, and the seconds it took."""
        await client.load_from_disk(target.path, target.label, timeout_s=self.limits.load_s)
        await self._check_label(client, target)
        began = time.monotonic()
        vector = await self.fingerprint(client)
        if not is_finite(vector):
            raise PinMismatch(
                f"engine {client.name} computes NaN after loading {target.label!r} from {target.path}: the "
                "load left tensors out, or the weights overflow in the engine's dtype"
            )
        return vector, time.monotonic() - began

    async def _load_visibly(
        self, client: SGLangClient, target: PinTarget, vector: Vector, near: float
    ) -> Vector:
        """Tell a version that computes what the last one did from an engine that ignores loads."""
        logger.info("engine %s: %s computes what was there before; loading zeros", client.name, target.label)
        await client.flush_until_idle(deadline_s=self.limits.flush_s)
        await client.load_from_disk(self.blank.zero_dir, BLANK_LABEL, timeout_s=self.limits.load_s)
        if distance(await self.fingerprint(client), vector) <= near:
            raise PinMismatch(
                f"engine {client.name} answers success to loads and keeps its weights: it computes the same "
                f"before and after {target.label!r}, and the same again after zeros"
            )
        await self._blank(client)
        again, _ = await self._load(client, target)
        if (apart := distance(again, vector)) > near:
            raise PinMismatch(
                f"engine {client.name}: two loads of {target.label!r} in a row are {apart:.3g} apart "
                f"(allowed {near:g})"
            )
        return again

    async def _check_label(self, client: SGLangClient, target: PinTarget) -> None:
        info = await client.model_info()
        if info.weight_version != target.label:
            raise PinMismatch(
                f"engine {client.name} says it serves {info.weight_version!r}, not {target.label!r}"
            )

    def _fits(self, path: Path) -> None:
        """CorruptVersion unless the checkpoint's tensors are those of the engines' model."""
        read_config(path)
        found = {
            name: slot.meta for header in read_headers(path).values() for name, slot in header.slots.items()
        }
        expected = self.model.expected()
        if missing := sorted(expected.keys() - found.keys()):
            raise CorruptVersion(f"{path}: {len(missing)} tensors are missing, the first is {missing[0]!r}")
        allowed = expected | self.model.optional()
        for name, meta in found.items():
            wanted = allowed.get(name)
            if wanted is None:
                raise CorruptVersion(f"{path}: {name!r} is no tensor of the engines' model {self.model.path}")
            if (meta.shape, meta.dtype) != (wanted.shape, wanted.dtype):
                raise CorruptVersion(
                    f"{path}: {name!r} is {meta.dtype}{list(meta.shape)}, the engines run "
                    f"{wanted.dtype}{list(wanted.shape)}"
                )
