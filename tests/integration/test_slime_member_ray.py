"""The receiver's actor as a member of slime's group: real Ray."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.local_ray import local_ray
from fakes.member_wire import RayWire
from fakes.slime_ranks import Rank, whole
from fakes.store_content import stored_content

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def ray_cluster() -> Iterator[None]:
    with local_ray():
        yield


def test_a_killed_actor_costs_one_version_and_ray_brings_it_back(tmp_path: Path) -> None:
    wire = RayWire(tmp_path, "member")
    rank = Rank(0, 1, wire)
    rank.sync(1)
    assert rank.outcome(1).state == "sealed"
    wire.kill()
    began = time.monotonic()
    rank.sync(2)
    assert time.monotonic() - began < 20.0
    wire.revive()
    rank.sync(3)
    lost = rank.outcome(2)
    assert (lost.state, lost.reason) == ("discarded", "receiver_restarted")
    assert stored_content(wire.store, rank.outcome(3).policy_version) == whole(3)
    rank.close()
    wire.close()
