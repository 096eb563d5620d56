"""The group when engines die, lie or stay away: exact about losses, never on base weights."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.engine import FakeEngine
from fakes.engine_checkpoint import SHAPES, write_checkpoint
from fakes.engine_group import SETTINGS, MakeGroup, Version, prompts, until

from live_eval.engines.engine import EngineSpec, EngineState
from live_eval.engines.fingerprint import FingerprintBook
from live_eval.engines.group import EngineGroup
from live_eval.engines.pin import BLANK_LABEL
from live_eval.engines.requests import RequestsLost
from live_eval.errors import (
    ConfigError,
    CorruptVersion,
    EngineDied,
    EngineError,
    EngineTimeout,
    LoadFailed,
    PinMismatch,
)

pytestmark = pytest.mark.usefixtures("quick_attach")


def loads_of(server: FakeEngine) -> list[str]:
    """Labels of the weights that the server was told to load, in order."""
    return [label for path, _, label in (call.partition(" ") for call in server.calls) if label]


def void(_: object) -> None:
    """Drop a result."""


async def test_requests_of_an_engine_that_dies_are_lost_and_no_others(
    make_group: MakeGroup, version: Version
) -> None:
    group, (first, second) = await make_group(2)
    second.tokens_s = 0.3
    first.tokens_s = 30
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        running = asyncio.create_task(lease.generate(prompts(16)))
        await until(lambda: first.num_running == 8)
        await first.stop()
        with pytest.raises(RequestsLost, match="8 of 16 requests are lost") as caught:
            await running
        assert {a.engine for a in caught.value.done} == {"e1"}
        lost = caught.value.lost
        assert len(lost) == 8
        assert {*lost, *(a.request_id for a in caught.value.done)} == {f"r{n}" for n in range(16)}
        # The other engine is still pinned, so nobody waits for the first.
        await lease.repin()
        second.tokens_s = 0
        await lease.generate([r for r in prompts(16) if r.request_id in lost])
        await lease.check_after()


async def test_a_restarted_engine_gets_no_prompt_before_a_verified_pin(
    make_group: MakeGroup, version: Version
) -> None:
    group, (server,) = await make_group()
    async with await group.lease("a") as lease:
        before = await lease.pin(version(1))
        await server.stop()
        with pytest.raises(EngineDied):
            await lease.generate(prompts(2))
        with pytest.raises(RequestsLost, match="2 of 2 requests are lost"):
            await lease.generate(prompts(2))
        server.reset()
        server.calls.clear()
        await server.start()
        await until(lambda: group.states() == {"e0": EngineState.READY})
        with pytest.raises(RequestsLost):
            await lease.generate(prompts(2))
        assert server.calls.count("/generate") == 1  # its first fingerprint
        await lease.repin()
        assert lease.report is not None
        assert lease.report.known
        assert lease.report.digest == before.digest
        assert {a.label for a in await lease.generate(prompts(2))} == {"1"}


async def test_an_engine_that_stays_away_ends_the_waiting(make_group: MakeGroup, version: Version) -> None:
    group, (server,) = await make_group(settings=replace(SETTINGS, usable_timeout_s=0.4))
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        await server.stop()
        with pytest.raises(EngineDied):
            await lease.generate(prompts(2))
        began = time.monotonic()
        with pytest.raises(EngineTimeout, match=r"no engine was ready within 0\.4 s"):
            await lease.repin()
        assert time.monotonic() - began < 9  # usable_timeout_s of the others


async def test_files_that_do_not_fit_touch_no_engine(make_group: MakeGroup, version: Version) -> None:
    group, (server,) = await make_group()
    bad = version(1)
    (bad.path / "model.safetensors").write_bytes(b"")
    async with await group.lease("a") as lease:
        server.calls.clear()
        with pytest.raises(CorruptVersion):
            await lease.pin(bad)
        assert server.calls == []
        assert group.states() == {"e0": EngineState.READY}
        with pytest.raises(EngineError, match="nothing is pinned"):
            await lease.generate(prompts(1))
        await lease.pin(version(2))


async def test_engines_are_made_ready_while_the_files_are_checked(
    make_group: MakeGroup, version: Version
) -> None:
    group, servers = await make_group(2)
    go_on = threading.Event()
    target = replace(version(1), verify=lambda: void(go_on.wait(10)))
    async with await group.lease("a") as lease:
        pinning = asyncio.create_task(lease.pin(target))
        await until(lambda: all(loads_of(server) == [BLANK_LABEL] for server in servers))
        await asyncio.sleep(0.1)
        assert not pinning.done()
        assert all(loads_of(server) == [BLANK_LABEL] for server in servers)
        go_on.set()
        await pinning
        assert all(loads_of(server) == [BLANK_LABEL, "1"] for server in servers)


@pytest.mark.parametrize("fault", [CorruptVersion("a digest is off"), PermissionError("not ours to read")])
async def test_a_check_that_fails_while_an_engine_fails_too_is_told_and_the_engine_restarts(
    make_group: MakeGroup, version: Version, fault: Exception
) -> None:
    group, (first, second) = await make_group(2)
    second.flush_refusals = math.inf

    def fail() -> None:
        raise fault

    async with await group.lease("a") as lease:
        with pytest.raises(type(fault), match=str(fault)):
            await lease.pin(replace(version(1), verify=fail))
        assert group.states()["e0"] is EngineState.READY
        assert group.states()["e1"] is not EngineState.READY
        second.flush_refusals = 0
        await lease.pin(version(2))
        assert loads_of(first) == [BLANK_LABEL, BLANK_LABEL, "2"]
    assert "1" not in loads_of(second)


async def test_after_a_failed_load_an_attached_engine_waits_for_its_owner_to_restart_it(
    make_group: MakeGroup, version: Version
) -> None:
    group, (server,) = await make_group()
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        server.load_status = 400
        with pytest.raises(LoadFailed):
            await lease.pin(version(2))
        server.load_status = 200
        await asyncio.sleep(0.3)
        assert group.states() == {"e0": EngineState.STARTING}
        await server.stop()
        await until(lambda: not group.engines[0]._must_be_new)  # it is seen to be gone
        server.reset()
        await server.start()
        await lease.pin(version(2))
        assert group.states() == {"e0": EngineState.PINNED}


async def test_an_engine_that_never_becomes_idle_is_quarantined_with_its_last_answer(
    make_group: MakeGroup, version: Version
) -> None:
    group, (server,) = await make_group()
    server.flush_refusals = 4
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        server.flush_refusals = float("inf")
        with pytest.raises(EngineTimeout, match="its last answer: 400 Flush cache failed"):
            await lease.pin(version(2))
        assert group.states()["e0"] in (EngineState.QUARANTINED, EngineState.STARTING, EngineState.READY)
        with pytest.raises(EngineError, match="nothing is pinned"):
            await lease.generate(prompts(1))


async def test_an_engine_that_is_lost_between_its_load_and_the_verdict_is_not_pinned(
    make_group: MakeGroup, version: Version
) -> None:
    group, (first, second) = await make_group(2)
    second.load_s = 2.0
    async with await group.lease("a") as lease:
        pin = asyncio.create_task(lease.pin(version(1)))
        await until(lambda: first.label == "1" and first.calls[-1] == "/generate")
        await asyncio.sleep(0.5)  # the answer has been taken, while the other engine still loads
        engine = group.engines[0]
        engine.quarantine(EngineDied("killed"), life=engine.life)
        report = await pin
        assert list(report.labels) == ["e1"]
        assert "lost right after the load" in report.dropped["e0"]
        # It is back by now, and the old pin says nothing about what it holds.
        await until(lambda: engine.state is EngineState.READY)
        assert {a.engine for a in await lease.generate(prompts(12))} == {"e1"}


async def test_an_error_of_an_earlier_life_is_old_news(make_group: MakeGroup) -> None:
    group, _ = await make_group()
    (engine,) = group.engines
    life = engine.life
    engine.quarantine(EngineDied("first"), life=life)
    await until(lambda: engine.state is EngineState.READY)
    engine.quarantine(EngineDied("late"), life=life)
    assert engine.state is EngineState.READY


async def test_one_bad_engine_is_dropped_and_the_other_serves(
    make_group: MakeGroup, version: Version
) -> None:
    group, (_, bad) = await make_group(2)
    bad.keeps_old_weights = True
    async with await group.lease("a") as lease:
        report = await lease.pin(version(1))
        assert list(report.labels) == ["e0"]
        assert "keeps its weights" in report.dropped["e1"]
        assert {a.engine for a in await lease.generate(prompts(12))} == {"e0"}


async def test_engines_that_disagree_are_believed_neither(make_group: MakeGroup, version: Version) -> None:
    book = FingerprintBook()
    group, (_, odd) = await make_group(2, book=book)
    odd.noise = 0.5
    async with await group.lease("a") as lease:
        with pytest.raises(PinMismatch, match="engines e0, e1 compute different log-probs"):
            await lease.pin(version(1))
    assert book.entries() == {}


async def test_check_after_finds_weights_that_changed_meanwhile(
    make_group: MakeGroup, version: Version
) -> None:
    group, (server,) = await make_group()
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        await lease.check_after()
        server.noise = 0.01
        with pytest.raises(PinMismatch, match="no longer computes"):
            await lease.check_after()
        assert group.states()["e0"] is not EngineState.PINNED
        with pytest.raises(EngineError, match="no engine of the lease is left"):
            await lease.check_after()


async def test_slow_health_during_a_load_is_not_death(make_group: MakeGroup, version: Version) -> None:
    group, (server,) = await make_group()
    server.health_s = 60
    server.load_s = 0.5
    async with await group.lease("a") as lease:
        await lease.pin(version(1))
        assert group.states() == {"e0": EngineState.PINNED}
        await lease.generate(prompts(2))


async def test_a_pin_whose_caller_is_cancelled_is_over_before_the_next_lease(
    make_group: MakeGroup, version: Version
) -> None:
    group, (server,) = await make_group()
    server.load_s = 0.3
    lease = await group.lease("a")
    pin = asyncio.create_task(lease.pin(version(1)))
    await until(lambda: any(call.startswith("/update") for call in server.calls))
    pin.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pin
    began = time.monotonic()
    await lease.release()
    assert time.monotonic() - began > 0.3
    assert server.calls[-1] == "/generate"
    assert group.states() == {"e0": EngineState.READY}
    async with await group.lease("b") as lease:
        await lease.pin(version(2))


async def test_an_engine_of_another_dtype_is_refused(make_group: MakeGroup, tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    told: list[str] = []
    for dtype in ("float16", "auto"):
        async with FakeEngine(model=base, dtype=dtype) as server:
            group = EngineGroup(
                [EngineSpec(name="e0", model_path=base, url=server.url)],
                work_dir=tmp_path / "work",
                on_state=lambda _name, _state, detail: told.append(detail),
            )
            await group.start()
            with pytest.raises(EngineDied, match="no engine is left: e0 is dead"):
                await group.wait_usable(10)
            await group.close()
    assert all("computes in float16, the checkpoint is float32" in detail for detail in told)


async def test_an_attached_engine_of_another_shape_is_refused_before_anything_is_loaded(
    make_group: MakeGroup, tmp_path: Path
) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    wide = write_checkpoint(tmp_path / "wide", seed=0, shapes={**SHAPES, "model.norm.weight": (8,)})
    told: list[str] = []
    async with FakeEngine(model=wide) as server:
        group = EngineGroup(
            [EngineSpec(name="e0", model_path=base, url=server.url)],
            work_dir=tmp_path / "work",
            on_state=lambda _name, _state, detail: told.append(detail),
        )
        await group.start()
        with pytest.raises(EngineDied, match="no engine is left: e0 is dead"):
            await group.wait_usable(10)
        await group.close()
        assert not any(call.startswith("/update") for call in server.calls)
    assert "where model.norm.weight is [8]; in" in told[-1] and "it is [4]" in told[-1]


async def test_waiting_for_an_engine_has_an_end(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    group = EngineGroup(
        [EngineSpec(name="e0", model_path=base, url="http://127.0.0.1:9")], work_dir=tmp_path / "work"
    )
    await group.start()
    with pytest.raises(EngineTimeout, match=r"no engine was ready within 0\.2 s: e0 is starting"):
        await group.wait_usable(0.2)
    await group.close()


def test_a_group_that_cannot_work_is_refused(tmp_path: Path) -> None:
    base = write_checkpoint(tmp_path / "base", seed=0)
    other = write_checkpoint(tmp_path / "other", seed=0)
    spec = EngineSpec(name="e0", model_path=base)
    with pytest.raises(ConfigError, match="at least one engine"):
        EngineGroup([], work_dir=tmp_path)
    with pytest.raises(ConfigError, match="names must differ"):
        EngineGroup([spec, spec], work_dir=tmp_path)
    with pytest.raises(ConfigError, match="same model_path"):
        EngineGroup([spec, EngineSpec(name="e1", model_path=other)], work_dir=tmp_path)
