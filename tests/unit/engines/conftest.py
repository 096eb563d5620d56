"""A group over attached servers, and versions for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.engine import FakeEngine
from fakes.engine_checkpoint import write_checkpoint
from fakes.engine_group import SETTINGS, MakeGroup

from live_eval.engines import engine as engine_module
from live_eval.engines.engine import EngineSpec
from live_eval.engines.group import EngineGroup, GroupSettings
from live_eval.engines.pin import PinTarget

if TYPE_CHECKING:
    from live_eval.engines.fingerprint import FingerprintBook


@pytest.fixture
def quick_attach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "ATTACH_POLL_S", 0.05)


@pytest.fixture
async def make_group(tmp_path: Path) -> AsyncIterator[MakeGroup]:
    base = write_checkpoint(tmp_path / "base", seed=0)
    async with AsyncExitStack() as stack:

        async def make(
            num: int = 1, *, book: FingerprintBook | None = None, settings: GroupSettings = SETTINGS
        ) -> tuple[EngineGroup, list[FakeEngine]]:
            servers = [await stack.enter_async_context(FakeEngine(model=base)) for _ in range(num)]
            specs = [
                EngineSpec(name=f"e{n}", model_path=base, url=server.url) for n, server in enumerate(servers)
            ]
            group = EngineGroup(specs, work_dir=tmp_path / "work", book=book, settings=settings)
            stack.push_async_callback(group.close)
            await group.start()
            while not all(engine.usable for engine in group.engines):  # noqa: ASYNC110 - set-up only
                await asyncio.sleep(0.01)
            return group, servers

        yield make


@pytest.fixture
def version(tmp_path: Path) -> Callable[[int], PinTarget]:
    def make(number: int) -> PinTarget:
        path = write_checkpoint(tmp_path / f"v{number}", seed=number)
        return PinTarget(label=str(number), path=path, digest=f"digest-{number}")

    return make
