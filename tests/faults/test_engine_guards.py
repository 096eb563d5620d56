"""Guards of an eval, each switched off in turn: answers that are not the version's must then be seen.

The engines are played by servers that say in each answer which bytes they hold, so that the
checker needs no label: an answer is right if it comes from the bytes of the lease's version.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from fakes.engine import FakeEngine
from fakes.engine_checkpoint import write_checkpoint
from fakes.job_bench import Bench

from live_eval.coordinator.records import JobRecords
from live_eval.digests import tensor_digest
from live_eval.engines import engine as engine_module
from live_eval.engines.engine import EngineSpec, RestartPolicy
from live_eval.engines.group import EngineGroup, GroupSettings
from live_eval.engines.lease import Lease
from live_eval.engines.pin import PinLimits, Pinner, PinTarget
from live_eval.engines.requests import RequestsLost
from live_eval.errors import EngineError, LedgerError, StoreError
from live_eval.evaluation.source import GenRequest
from live_eval.reasons import JobStatus
from protocol.messages import JobEvent

SETTINGS = GroupSettings(
    limits=PinLimits(flush_s=1.0, load_s=5.0, fingerprint_s=5.0),
    restarts=RestartPolicy(back_off_s=0.05),
    usable_timeout_s=5.0,
    request_timeout_s=5.0,
    max_prompts_per_call=2,
)
PROMPTS = [GenRequest(request_id=f"r{number}", text=f"p{number}") for number in range(12)]


class TruthfulEngine(FakeEngine):
    """Answers with the digest of what it holds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.loads_next: Path | None = None
        """Somebody else loads this as soon as the next load of a version is over."""

    @property
    def holds(self) -> str:
        """Digest of all tensors."""
        return tensor_digest(repr(sorted(self._tensors.items())).encode())

    async def _answers(self, body: dict[str, Any], prompts: list[Any]) -> list[dict[str, Any]]:
        answers = await super()._answers(body, prompts)
        return [answer | {"text": self.holds} for answer in answers]

    async def _update(self, path: Path, label: str) -> Any:
        reply = await super()._update(path, label)
        if self.loads_next is not None and label.isdigit():
            await super()._update(self.loads_next, "99")
        return reply


@asynccontextmanager
async def group_of(root: Path) -> AsyncIterator[tuple[EngineGroup, TruthfulEngine]]:
    """A group of one such server."""
    base = write_checkpoint(root / "base", seed=0)
    async with TruthfulEngine(model=base) as server:
        spec = EngineSpec(name="e0", model_path=base, url=server.url)
        group = EngineGroup([spec], work_dir=root / "work", settings=SETTINGS)
        await group.start()
        try:
            await group.wait_usable(5.0)
            yield group, server
        finally:
            await group.close()


def version(root: Path, number: int) -> PinTarget:
    path = write_checkpoint(root / f"v{number}", seed=number)
    return PinTarget(label=str(number), path=path, digest=f"digest-{number}")


async def wrong_answers(lease: Lease, target: PinTarget) -> int:
    """How many answers of the lease are not of its target's bytes, or were cut or lost."""
    right = TruthfulEngine(model=target.path).holds
    try:
        answers = await lease.generate(PROMPTS)
    except RequestsLost as error:
        return len(error.lost)
    return sum(answer.text != right or answer.finish_reason != "stop" for answer in answers)


# --- what goes wrong; each returns how many answers were of other weights -----------------------


async def an_engine_that_ignores_loads(root: Path) -> int:
    async with group_of(root) as (group, server):
        server.keeps_old_weights = True
        async with await group.lease("v1") as lease:
            await lease.pin(version(root, 1))
            return await wrong_answers(lease, version(root, 1))


async def somebody_else_loads_right_after(root: Path) -> int:
    async with group_of(root) as (group, server):
        server.loads_next = version(root, 9).path
        async with await group.lease("v1") as lease:
            await lease.pin(version(root, 1))
            return await wrong_answers(lease, version(root, 1))


async def two_evals_at_once(root: Path) -> int:
    async with group_of(root) as (group, server):
        server.tokens_s = 0.2
        one, two = version(root, 1), version(root, 2)

        async def other() -> None:
            while not server.num_running:  # noqa: ASYNC110 - the fake has no event for it
                await asyncio.sleep(0.01)
            async with await group.lease("v2") as lease:
                await lease.pin(two)

        async with await group.lease("v1") as lease:
            await lease.pin(one)
            task = asyncio.create_task(other())
            try:
                return await wrong_answers(lease, one)
            finally:
                await lease.release()
                await asyncio.gather(task, return_exceptions=True)


async def a_file_that_changed_on_disk(root: Path) -> int:
    async with group_of(root) as (group, _):
        one = version(root, 1)
        right = TruthfulEngine(model=one.path).holds

        def verify() -> None:
            if TruthfulEngine(model=one.path).holds != right:
                raise StoreError("the files are not what was sealed")

        target = PinTarget(label="1", path=one.path, digest=one.digest, verify=verify)
        write_checkpoint(one.path, seed=7)
        async with await group.lease("v1") as lease:
            await lease.pin(target)
            answers = await lease.generate(PROMPTS)
            return sum(answer.text != right for answer in answers)


# --- the guards ---------------------------------------------------------------------------------


def without_lease(patch: pytest.MonkeyPatch) -> None:
    async def lease(self: EngineGroup, owner: str) -> Lease:
        return Lease(self, self.engines, owner=owner, on_release=lambda: None)

    patch.setattr(EngineGroup, "lease", lease)


def without_pin_check(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        pass

    patch.setattr(Pinner, "_check_label", nothing)


def without_fingerprint(patch: pytest.MonkeyPatch) -> None:
    async def believed(self: Pinner, client: object, target: object, vector: Any, near: float) -> Any:
        return vector

    patch.setattr(Pinner, "_load_visibly", believed)


def without_digests(patch: pytest.MonkeyPatch) -> None:
    async def check_content(self: Pinner, target: PinTarget) -> float:
        return 0.0

    patch.setattr(Pinner, "check_content", check_content)


GUARDS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], Callable[[Path], Awaitable[int]]]] = {
    "lease": (without_lease, two_evals_at_once),
    "pin check": (without_pin_check, somebody_else_loads_right_after),
    "fingerprint": (without_fingerprint, an_engine_that_ignores_loads),
    "digest check before a load": (without_digests, a_file_that_changed_on_disk),
}


@pytest.fixture(autouse=True)
def quick_attach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "ATTACH_POLL_S", 0.05)


@pytest.mark.parametrize("name", GUARDS)
async def test_with_its_guard_no_answer_comes_from_other_weights(tmp_path: Path, name: str) -> None:
    _, scenario = GUARDS[name]
    with suppress(EngineError, StoreError):  # refused: there is no answer at all
        assert await scenario(tmp_path) == 0


@pytest.mark.parametrize("name", GUARDS)
async def test_without_its_guard_answers_come_from_other_weights(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off, scenario = GUARDS[name]
    switch_off(monkeypatch)
    assert await scenario(tmp_path) > 0


# --- the ledger before anybody is told ----------------------------------------------------------


async def told_and_not_on_disk(root: Path) -> set[str]:
    """Jobs whose end was announced by a service that could not write it."""
    bench = Bench(root)
    try:
        bench.seal(1)
        bench.ledger.fails_at = "finish"
        with pytest.raises(LedgerError):
            await bench.run_to_the_end()
        told = {event.job_id for event in bench.events if JobStatus(event.status).terminal}
        return told - bench.ends.keys()
    finally:
        bench.close()


async def test_nobody_is_told_of_an_end_that_is_not_on_disk(tmp_path: Path) -> None:
    assert await told_and_not_on_disk(tmp_path) == set()


async def test_a_service_that_tells_first_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = JobRecords.end

    def tell_first(self: JobRecords, action: Any) -> Any:
        event = JobEvent(job_id=action.job_id, dataset="a", status=action.status, reason=action.reason)
        self._announce(event)
        return end(self, action)

    monkeypatch.setattr(JobRecords, "end", tell_first)
    assert await told_and_not_on_disk(tmp_path) != set()
