"""Engines that are launched when it is known with what."""

from __future__ import annotations

import asyncio

import pytest
from fakes.job_group import FakeGroup

from live_eval.engines.on_demand import EnginesOnDemand
from live_eval.errors import EngineDied


async def test_the_first_lease_starts_them_and_the_others_use_them() -> None:
    group, owners = FakeGroup(), []

    async def make(owner: str) -> FakeGroup:
        owners.append(owner)
        await asyncio.sleep(0)
        return group

    engines = EnginesOnDemand(make)  # type: ignore[arg-type]
    assert engines.engines == ()
    for owner in ("c1", "c2"):
        lease = await engines.lease(owner)
        await lease.release()
    assert owners == ["c1"]
    assert group.events == ["lease c1", "release", "lease c2", "release"]


async def test_a_start_that_fails_is_tried_again_by_the_next() -> None:
    group, faults = FakeGroup(), [EngineDied("no engine is left")]

    async def make(owner: str) -> FakeGroup:
        if faults:
            raise faults.pop()
        return group

    engines = EnginesOnDemand(make)  # type: ignore[arg-type]
    with pytest.raises(EngineDied):
        await engines.lease("c1")
    await engines.lease("c2")
    assert group.events == ["lease c2"]
