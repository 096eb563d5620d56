"""A trainer's broadcast to the newest SGLang: it opens a weight update first, and closes it after."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import torch
from fakes.facade import FacadeProcess, facade_engine
from fakes.tiny_model import tiny_qwen2

from live_eval.engines.client import SGLangClient
from live_eval.publisher.base import bucketize
from live_eval.publisher.collective import CollectiveConfig, CollectivePublisher
from live_eval.publisher.sglang_engine import SGLangEngine

if TYPE_CHECKING:
    from sglang_next.conftest import Server

TOKENS = [[1, 17, 250, 33, 4, 99, 200, 7]]
TOLERANCE = 2e-4


def wanted(version: int) -> torch.Tensor:
    """Log-probabilities of TOKENS but the first, from torch."""
    ids = torch.tensor(TOKENS)
    with torch.no_grad():
        scores = torch.log_softmax(tiny_qwen2(seed=version)(ids).logits[0, :-1].float(), dim=-1)
    return scores.gather(1, ids[0, 1:, None])[:, 0]


async def held(url: str) -> tuple[str, torch.Tensor]:
    """Label and log-probabilities of the server."""
    async with SGLangClient(url) as client:
        await client.flush_until_idle(deadline_s=30.0)
        (row,) = await client.logprobs(TOKENS)
        return (await client.model_info()).weight_version, torch.tensor(row)


def test_each_sync_reaches_the_server_and_the_receiver(server: Server, tmp_path: Path) -> None:
    facade = FacadeProcess(tmp_path, base=server.versions[0], deadline_s=20.0)
    engine = SGLangEngine(server.url)
    publisher = CollectivePublisher(
        CollectiveConfig(run_id="run", incarnation_id="life", group_timeout_s=20.0, probe_timeout_s=15.0),
        receiver=facade_engine(facade),
        engines=[engine],
    )
    try:
        for version in (1, 2, 3):
            publisher.begin(version)
            for bucket in bucketize(list(tiny_qwen2(seed=version).state_dict().items()), 128 * 1024):
                publisher.put_bucket(bucket)
            if version == 2:
                publisher.abort("on purpose")
                continue
            assert publisher.commit().published
            label, found = asyncio.run(held(server.url))
            assert label == str(version)
            assert (found - wanted(version)).abs().max() < TOLERANCE
    finally:
        publisher.close()
        engine.close()
        facade.close()


def test_without_an_open_update_the_server_refuses_a_bucket(server: Server) -> None:
    body = {"names": ["x"], "dtypes": ["float32"], "shapes": [[1]], "group_name": "none"}
    answer = httpx.post(
        f"{server.url}/update_weights_from_distributed", json=body, timeout=30, trust_env=False
    )
    assert answer.status_code == 400
    assert "begin_weight_update" in answer.text


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
