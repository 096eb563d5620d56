"""Parts of a group: disjoint, in order, and never of engines that are given up."""

from __future__ import annotations

import asyncio

import pytest
from fakes.engine_group import MakeGroup, Version, prompts, until

from live_eval.engines.engine import EngineState
from live_eval.engines.lending import Lending
from live_eval.errors import EngineDied

pytestmark = pytest.mark.usefixtures("quick_attach")


class Each:
    """As much of an engine as lending looks at."""

    def __init__(self, name: str, state: EngineState = EngineState.READY) -> None:
        self.name = name
        self.state = state

    @property
    def usable(self) -> bool:
        return self.state in (EngineState.READY, EngineState.PINNED)


def names(part: tuple[Each, ...]) -> list[str]:
    return [each.name for each in part]


async def some(lending: Lending, num_engines: int | None) -> list[str]:
    async with asyncio.timeout(20):
        return names(await lending.take(num_engines))  # type: ignore[arg-type]


def engines(num: int) -> tuple[list[Each], Lending]:
    made = [Each(f"e{number}") for number in range(num)]
    return made, Lending(made)  # type: ignore[arg-type]


async def test_parts_are_disjoint_and_the_next_waits_for_enough_free_ones() -> None:
    made, lending = engines(3)
    assert await some(lending, 2) == ["e0", "e1"]
    waiting = asyncio.create_task(some(lending, 2))
    await asyncio.sleep(0)
    assert not waiting.done()
    lending.give_back(made[:1])  # type: ignore[arg-type]
    assert await waiting == ["e0", "e2"]


async def test_whoever_wants_all_is_not_overtaken_by_those_that_want_some() -> None:
    made, lending = engines(2)
    assert await some(lending, 1) == ["e0"]
    everything = asyncio.create_task(some(lending, None))
    await asyncio.sleep(0)
    one = asyncio.create_task(some(lending, 1))
    await asyncio.sleep(0.01)
    assert not everything.done()
    assert not one.done()
    lending.give_back(made[:1])  # type: ignore[arg-type]
    assert await everything == ["e0", "e1"]
    lending.give_back(made)  # type: ignore[arg-type]
    assert await one == ["e0"]


async def test_one_that_waits_and_is_cancelled_holds_up_nobody() -> None:
    made, lending = engines(1)
    assert await some(lending, 1) == ["e0"]
    given_up = asyncio.create_task(some(lending, 1))
    await asyncio.sleep(0)
    behind = asyncio.create_task(some(lending, 1))
    await asyncio.sleep(0)
    given_up.cancel()
    lending.give_back(made)  # type: ignore[arg-type]
    assert await behind == ["e0"]


async def test_engines_that_can_serve_come_first_and_dead_ones_are_in_no_part() -> None:
    made, lending = engines(4)
    made[0].state, made[1].state = EngineState.DEAD, EngineState.STARTING
    assert await some(lending, 1) == ["e2"]
    assert await some(lending, 2) == ["e1", "e3"]


async def test_a_part_is_smaller_where_fewer_engines_are_left_and_a_death_ends_a_wait_for_them() -> None:
    made, lending = engines(2)
    waiting_for_both = [await lending.take(1)]
    waiting = asyncio.create_task(some(lending, 2))
    await asyncio.sleep(0)
    assert not waiting.done()
    made[0].state = EngineState.DEAD
    lending.look_again()
    assert await waiting == ["e1"]
    assert names(waiting_for_both[0]) == ["e0"]  # type: ignore[arg-type]


async def test_when_all_are_given_up_somebody_gets_them_to_be_told_so() -> None:
    made, lending = engines(2)
    for each in made:
        each.state = EngineState.DEAD
    assert await some(lending, 1) == ["e0"]


async def test_two_leases_load_and_generate_at_the_same_time_each_on_its_own_engine(
    make_group: MakeGroup, version: Version
) -> None:
    group, servers = await make_group(2)
    for server in servers:
        server.tokens_s = 0.2
    first, second = await group.lease("c1", 1), await group.lease("c2", 1)
    third = asyncio.create_task(group.lease("v1"))
    await asyncio.gather(first.pin(version(1)), second.pin(version(2)))
    one, two = await asyncio.gather(first.generate(prompts(4)), second.generate(prompts(4)))
    assert {(each.engine, each.label) for each in one} == {("e0", "1")}
    assert {(each.engine, each.label) for each in two} == {("e1", "2")}
    await first.release()
    assert group.states() == {"e0": EngineState.READY, "e1": EngineState.PINNED}
    await second.check_after()
    assert not third.done()
    await second.release()
    async with await third as lease:
        assert (await lease.pin(version(3))).labels == {"e0": "3", "e1": "3"}


async def test_an_abort_of_one_lease_leaves_the_other_alone(make_group: MakeGroup, version: Version) -> None:
    group, servers = await make_group(2)
    first, second = await group.lease("c1", 1), await group.lease("c2", 1)
    await asyncio.gather(first.pin(version(1)), second.pin(version(2)))
    for server in servers:
        server.tokens_s = 0.5
    running = [asyncio.create_task(lease.generate(prompts(4))) for lease in (first, second)]
    await until(lambda: all(server.num_running for server in servers))
    await first.abort()
    assert {answer.finish_reason for answer in await running[0]} == {"abort"}
    assert {answer.finish_reason for answer in await running[1]} == {"stop"}
    await first.release()
    await second.release()


async def test_a_lease_whose_only_engine_is_lost_says_so_while_another_has_a_good_one(
    make_group: MakeGroup, version: Version
) -> None:
    group, _ = await make_group(2)
    first, second = await group.lease("c1", 1), await group.lease("c2", 1)
    await second.pin(version(2))
    group.engines[0].state = EngineState.DEAD
    with pytest.raises(EngineDied, match="no engine is left: e0 is dead"):
        await first.pin(version(1))
    await first.release()
    retried = asyncio.create_task(group.lease("c1", 1))
    await second.release()
    lease = await retried
    assert (await lease.pin(version(1))).labels == {"e1": "1"}
    await lease.release()
