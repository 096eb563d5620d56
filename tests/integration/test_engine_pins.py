"""Pins on the real SGLang server: what is proven about the weights that it computes with.

All tests share one server; it is launched on version 1, so that its first answers are those of a
fresh engine on version 1.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from fakes.engine_proxy import LyingProxy
from fakes.tiny_model import VOCAB_SIZE, write_tiny_model
from safetensors.numpy import load_file, save_file

from live_eval.engines.blank import write_blank_weights
from live_eval.engines.client import SGLangClient
from live_eval.engines.engine import EngineSpec
from live_eval.engines.fingerprint import FingerprintBook, Vector, distance, token_ids
from live_eval.engines.group import EngineGroup, GroupSettings
from live_eval.engines.launch import EngineProcess, launch_settings
from live_eval.engines.pin import BLANK_LABEL, Held, Pinner, PinTarget
from live_eval.errors import CorruptVersion, PinMismatch
from live_eval.evaluation.source import GenRequest
from live_eval.store.base import BaseCheckpoint
from live_eval.store.checkpoint import check_complete

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

PROMPTS = [[5, 6, 7, 8], [200, 100, 50], list(range(40, 60)), [9]]
NUM_NEW = 24


@dataclass(frozen=True)
class Server:
    """The shared server and what it computed before its first load."""

    url: str
    versions: tuple[Path, ...]
    fresh_vector: Vector
    fresh_tokens: list[tuple[int, ...]]


async def greedy(client: SGLangClient) -> list[tuple[int, ...]]:
    """The engine's tokens at temperature 0."""
    sampling = {"temperature": 0, "max_new_tokens": NUM_NEW, "ignore_eos": True}
    requests = [
        GenRequest(request_id=f"g{n}-{time.monotonic_ns()}", input_ids=tuple(ids), sampling=sampling)
        for n, ids in enumerate(PROMPTS)
    ]
    return [answer.output_ids for answer in await client.generate(requests, timeout_s=120)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("pins")
    versions = tuple(write_tiny_model(root / f"v{seed}", seed=seed) for seed in range(4))
    process = EngineProcess.start(launch_settings(versions[1], device="cpu"), log=root / "engine.log")

    async def first_answers() -> tuple[Vector, list[tuple[int, ...]]]:
        await process.wait_ready(600)
        async with SGLangClient(process.url) as client:
            (vector,) = await client.logprobs([token_ids(VOCAB_SIZE)])
            return tuple(vector), await greedy(client)

    try:
        vector, tokens = asyncio.run(first_answers())
        yield Server(url=process.url, versions=versions, fresh_vector=vector, fresh_tokens=tokens)
    finally:
        asyncio.run(process.stop())


@pytest.fixture
async def client(server: Server) -> AsyncIterator[SGLangClient]:
    async with SGLangClient(server.url) as found:
        yield found


@pytest.fixture
def pinner(server: Server, tmp_path: Path) -> Pinner:
    model = BaseCheckpoint.read(server.versions[1])
    return Pinner(
        model=model,
        blank=write_blank_weights(tmp_path / "blank", model.expected().values()),
        ids=token_ids(VOCAB_SIZE),
        book=FingerprintBook(),
    )


@pytest.fixture
async def flavour(client: SGLangClient) -> str:
    return (await client.server_info()).flavour


def target(server: Server, number: int) -> PinTarget:
    path = server.versions[number]
    return PinTarget(
        label=str(number),
        path=path,
        digest=f"digest-{number}",
        verify=lambda: print(check_complete(path, check_finite=True)),
    )


async def held_now(pinner: Pinner, client: SGLangClient) -> Held:
    return Held(vector=await pinner.fingerprint(client))


async def test_one_two_one_equals_a_fresh_engine_on_one(
    server: Server, client: SGLangClient, pinner: Pinner, flavour: str
) -> None:
    before = await held_now(pinner, client)
    first = await pinner.pin(client, target(server, 1), before=before, flavour=flavour)
    second = await pinner.pin(client, target(server, 2), before=first.held, flavour=flavour)
    tokens_of_two = await greedy(client)
    again = await pinner.pin(client, target(server, 1), before=second.held, flavour=flavour)
    assert distance(first.held.vector, server.fresh_vector) < 1e-6
    assert distance(again.held.vector, server.fresh_vector) < 1e-6
    assert second.moved > 0.5
    assert await greedy(client) == server.fresh_tokens != tokens_of_two


def tokens_of_transformers(path: Path) -> list[tuple[int, ...]]:
    """What transformers' own code generates for the prompts, greedily."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path)
    found = []
    for prompt in PROMPTS:
        ids = torch.tensor([prompt])
        with torch.no_grad():
            for _ in range(NUM_NEW):
                ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
        found.append(tuple(ids[0, len(prompt) :].tolist()))
    return found


async def test_transformers_gives_the_engines_tokens_at_temperature_zero(
    server: Server, client: SGLangClient, pinner: Pinner, flavour: str
) -> None:
    for number in (2, 3):
        before = await held_now(pinner, client)
        await pinner.pin(client, target(server, number), before=before, flavour=flavour)
        wanted = await asyncio.to_thread(tokens_of_transformers, server.versions[number])
        assert await greedy(client) == wanted


def without(source: Path, lost: str, directory: Path) -> Path:
    """A copy of the checkpoint's weights that lacks one tensor."""
    directory.mkdir()
    tensors = load_file(source / "model.safetensors")
    del tensors[lost]
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_bytes((source / "config.json").read_bytes())
    return directory


@pytest.mark.parametrize(
    "lost",
    [
        "model.embed_tokens.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.k_proj.bias",
        "model.layers.1.self_attn.v_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
        "model.norm.weight",
        "lm_head.weight",
    ],
)
async def test_a_load_that_leaves_one_tensor_out_is_caught_at_its_first_time(
    server: Server, client: SGLangClient, pinner: Pinner, flavour: str, tmp_path: Path, lost: str
) -> None:
    incomplete = replace(target(server, 2), path=without(server.versions[2], lost, tmp_path / "lost"))
    before = await held_now(pinner, client)
    with pytest.raises(CorruptVersion, match=f"1 tensors are missing, the first is '{lost}'"):
        await pinner.check_headers(incomplete)
    # The engine takes it, and says that it serves it.
    with pytest.raises(PinMismatch, match="computes NaN"):
        await pinner.pin(client, incomplete, before=before, flavour=flavour)
    assert (await client.model_info()).weight_version == "2"
    good = await pinner.pin(client, target(server, 2), before=before, flavour=flavour)
    assert good.held.vector


@pytest.mark.parametrize(
    ("swallowed", "words"),
    [
        ({BLANK_LABEL, "1", "2"}, "answers success to loads and keeps its weights"),
        ({"2"}, "computes NaN after loading '2'"),
    ],
)
async def test_an_engine_that_keeps_its_weights_under_the_new_label_is_caught(
    server: Server, tmp_path: Path, swallowed: set[str], words: str
) -> None:
    async with LyingProxy(server.url) as proxy:
        group = EngineGroup(
            [EngineSpec(name="e0", model_path=server.versions[1], url=proxy.url)], work_dir=tmp_path / "work"
        )
        await group.start()
        try:
            async with await group.lease("a") as lease:
                await lease.pin(target(server, 1))
                proxy.swallowed, proxy.num_loads = swallowed, 0
                with pytest.raises(PinMismatch, match=words):
                    await lease.pin(target(server, 2))
                assert proxy.num_loads >= 2
                assert group.engines[0].state.value in ("quarantined", "starting")
        finally:
            await group.close()


async def test_bad_files_never_reach_the_engine(server: Server, client: SGLangClient, tmp_path: Path) -> None:
    group = EngineGroup(
        [EngineSpec(name="e0", model_path=server.versions[1], url=server.url)], work_dir=tmp_path / "work"
    )
    await group.start()
    try:
        async with await group.lease("a") as lease:
            await lease.pin(target(server, 3))
            for name, words, label in (
                ("short", "announces", "3"),
                ("wide", "the engines run", "3"),
                ("nan", "NaN or infinity", BLANK_LABEL),  # the engine was made ready meanwhile
            ):
                path = tmp_path / name
                write_tiny_model(path, seed=2, hidden_size=32 if name == "wide" else 64)
                spoil(path / "model.safetensors", name)
                bad = PinTarget(label=name, path=path, verify=lambda path=path: check(path))
                with pytest.raises(CorruptVersion, match=words):
                    await lease.pin(bad)
                assert (await client.model_info()).weight_version == label
                assert group.engines[0].usable
            await lease.pin(target(server, 1))
            assert await greedy(client) == server.fresh_tokens
    finally:
        await group.close()


def check(path: Path) -> None:
    check_complete(path, check_finite=True)


def spoil(file: Path, how: str) -> None:
    if how == "nan":
        tensors = load_file(file)
        tensors["model.norm.weight"][3] = float("nan")
        save_file(tensors, file, metadata={"format": "pt"})
    elif how == "short":
        file.write_bytes(file.read_bytes()[:-100])


async def until_generating(url: str, num_requests: int) -> None:
    """The engine has so many requests, and some tokens of theirs."""
    async with asyncio.timeout(60), httpx.AsyncClient(trust_env=False, timeout=60) as http:
        while True:
            (load,) = (await http.get(f"{url}/get_load")).json()
            num_used = load["num_tokens"] - load["num_pending_tokens"]
            if load["num_reqs"] >= num_requests and num_used > 20 * num_requests:
                return
            await asyncio.sleep(0.05)


async def test_an_abort_of_64_requests_takes_less_than_a_second_and_the_next_load_works(
    server: Server, client: SGLangClient, tmp_path: Path
) -> None:
    group = EngineGroup(
        [EngineSpec(name="e0", model_path=server.versions[1], url=server.url)],
        work_dir=tmp_path / "work",
        settings=GroupSettings(max_prompts_per_call=32, max_calls_per_engine=2),
    )
    sampling = {"temperature": 1.0, "max_new_tokens": 450, "ignore_eos": True}
    requests = [GenRequest(request_id=f"abort{n}", text=f"prompt {n}", sampling=sampling) for n in range(80)]
    await group.start()
    try:
        async with await group.lease("a") as lease:
            await lease.pin(target(server, 2))
            running = asyncio.create_task(lease.generate(requests))
            await until_generating(server.url, 64)
            began = time.monotonic()
            await lease.abort()
            assert time.monotonic() - began < 1.0
            answers = await running
            assert [a.request_id for a in answers] == [r.request_id for r in requests]
            assert {a.finish_reason for a in answers} == {"abort"}
            assert sum(a.label == "2" for a in answers) == 64
            assert sum(a.num_tokens for a in answers) > 0
            await lease.pin(target(server, 1))
            assert await greedy(client) == server.fresh_tokens
            await lease.check_after()
    finally:
        await group.close()


async def test_answers_carry_the_engines_label_and_a_long_prompt_is_refused_alone(
    server: Server, client: SGLangClient, tmp_path: Path
) -> None:
    group = EngineGroup(
        [EngineSpec(name="e0", model_path=server.versions[1], url=server.url)], work_dir=tmp_path / "work"
    )
    sampling = {"temperature": 0, "max_new_tokens": 8}
    requests = [
        GenRequest(request_id=f"mixed{n}", text="y" * (600 if n == 2 else 5), sampling=sampling)
        for n in range(5)
    ]
    await group.start()
    try:
        async with await group.lease("a") as lease:
            await lease.pin(target(server, 2))
            answers = await lease.generate(requests)
            assert [a.finish_reason == "refused" for a in answers] == [n == 2 for n in range(5)]
            assert "longer than the model's context" in answers[2].detail
            assert {a.label for a in answers} == {"2", ""}
            # Somebody else loads behind our back: the answers show it, and so does the check.
            await client.load_from_disk(server.versions[3], "3", timeout_s=60)
            (answer,) = await lease.generate([GenRequest(request_id="late", text="y", sampling=sampling)])
            assert answer.label == "3"
            with pytest.raises(PinMismatch, match="says it serves '3', not '2'"):
                await lease.check_after()
    finally:
        await group.close()
