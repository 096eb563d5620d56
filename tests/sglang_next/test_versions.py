"""The newest SGLang as an eval engine: what it says of itself, and what it proves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from fakes.job import job_in
from fakes.job_checker import check_job
from fakes.tiny_model import write_tiny_model

from live_eval.config import EngineSettings
from live_eval.engines.client import SGLangClient
from live_eval.engines.engine import EngineSpec
from live_eval.engines.fingerprint import FingerprintBook
from live_eval.engines.group import EngineGroup
from live_eval.engines.pin import PinTarget
from live_eval.errors import CorruptVersion, PinMismatch
from live_eval.evaluation.source import GenRequest

if TYPE_CHECKING:
    from sglang_next.conftest import Server

    from live_eval.engines.lease import Lease

SAMPLING = {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}


@pytest.fixture
async def client(server: Server) -> AsyncIterator[SGLangClient]:
    async with SGLangClient(server.url) as found:
        yield found


def target(server: Server, number: int) -> PinTarget:
    return PinTarget(label=str(number), path=server.versions[number], digest=f"digest-{number}")


@asynccontextmanager
async def leased(server: Server, work_dir: Path, book: FingerprintBook) -> AsyncIterator[Lease]:
    """The server as an attached engine of a group."""
    spec = EngineSpec(name="e0", model_path=server.versions[0], device="cpu", url=server.url)
    group = EngineGroup([spec], work_dir=work_dir, book=book)
    await group.start()
    try:
        async with await group.lease("test") as lease:
            yield lease
    finally:
        await group.close()


def prompts(name: str, num: int = 3) -> list[GenRequest]:
    return [GenRequest(request_id=f"{name}{n}", text=f"prompt {n}", sampling=SAMPLING) for n in range(num)]


async def test_it_says_which_version_it_is_and_has_checksums(client: SGLangClient) -> None:
    assert (await client.server_info()).flavour == "sglang-0.5.23/float32/cpu/tp1"
    assert await client.checksum() != ""


async def test_one_two_one_is_the_same_by_fingerprint_checksum_and_tokens(
    server: Server, tmp_path: Path
) -> None:
    book, seen = FingerprintBook(), {}
    async with leased(server, tmp_path, book) as lease:
        for turn, number in enumerate((1, 2, 1)):
            report = await lease.pin(target(server, number))
            assert report.labels == {"e0": str(number)}
            answers = await lease.generate(prompts(f"t{turn}-"))
            assert {answer.label for answer in answers} == {str(number)}
            seen.setdefault(number, set()).add(tuple(answer.output_ids for answer in answers))
            await lease.check_after()
        assert report.known
    assert [len(tokens) for tokens in seen.values()] == [1, 1]
    assert seen[1] != seen[2]
    flavour = "sglang-0.5.23/float32/cpu/tp1"
    sums = {number: book.checksum(f"digest-{number}", flavour) for number in (1, 2)}
    assert sums[1] and sums[2] and sums[1] != sums[2]


async def test_a_checksum_of_an_earlier_life_is_compared_with(server: Server, tmp_path: Path) -> None:
    book = FingerprintBook(checksums={"digest-3/sglang-0.5.23/float32/cpu/tp1/r1": "another"})
    async with leased(server, tmp_path, book) as lease:
        with pytest.raises(PinMismatch, match="of an earlier load of digest-3 it was another"):
            await lease.pin(target(server, 3))


async def test_a_checkpoint_of_another_shape_never_reaches_the_engine(
    server: Server, client: SGLangClient, tmp_path: Path
) -> None:
    wide = write_tiny_model(tmp_path / "wide", seed=1, hidden_size=32)
    async with leased(server, tmp_path / "work", FingerprintBook()) as lease:
        await lease.pin(target(server, 2))
        with pytest.raises(CorruptVersion, match="the engines run"):
            await lease.pin(PinTarget(label="9", path=wide))
        assert (await client.model_info()).weight_version == "2"


async def test_a_load_in_the_middle_of_answers_shows_in_their_label(
    server: Server, client: SGLangClient
) -> None:
    """The segments name both weights, where the label at the end alone would name the later ones."""
    await client.flush_until_idle(deadline_s=30.0)
    await client.load_from_disk(server.versions[1], "1", timeout_s=60)
    long = GenRequest(request_id="long", text="x", sampling={**SAMPLING, "max_new_tokens": 450})
    asking = asyncio.create_task(client.generate([long], timeout_s=60))
    await asyncio.sleep(0.3)
    # Asked after it and answered beside it: so the long one is under way.
    await client.generate(prompts("beside", 1), timeout_s=60)
    async with httpx.AsyncClient(base_url=server.url, timeout=60, trust_env=False) as http:
        for path, body in (
            ("/pause_generation", {"mode": "retract"}),
            ("/update_weights_from_disk", {"model_path": str(server.versions[2]), "weight_version": "2"}),
            ("/continue_generation", {}),
        ):
            response = await http.post(path, json=body)
            assert response.status_code == 200, (path, response.text)
    (answer,) = await asking
    assert answer.label == "1+2"


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    yield write_tiny_model(tmp_path / "base", seed=0)


def test_a_whole_job_of_a_service_is_evaluated_on_it(server: Server, base: Path, tmp_path: Path) -> None:
    engines = EngineSettings(addresses=(server.url,), device="cpu")
    with job_in(tmp_path / "job", base, engines, scheduler={"on_update": "queue"}) as job:
        trainer = job.trainer()
        trainer.round()
        trainer.round()
        job.start()
        job.finish()
        check_job(job, trainer)
        assert set(job.ends().values()) == {"succeeded: completed"} and len(job.ends()) == 4
        assert len(job.ask_ledger("SELECT key FROM kv WHERE key LIKE 'checksum/%'")) == 2
