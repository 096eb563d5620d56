"""One broadcast to the receiver and to a real SGLang server: both end up with the trainer's weights."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from fakes.facade import FacadeProcess, facade_engine
from fakes.tiny_model import tiny_qwen2, write_tiny_model
from transformers import AutoModelForCausalLM

from live_eval.engines.client import SGLangClient
from live_eval.engines.launch import EngineProcess, launch_settings
from live_eval.publisher.base import SyncReport, bucketize
from live_eval.publisher.collective import CollectiveConfig, CollectivePublisher
from live_eval.publisher.sglang_engine import SGLangEngine

if TYPE_CHECKING:
    from protocol.messages import SyncOutcome

pytestmark = pytest.mark.engine

TOKENS = [[1, 17, 250, 33, 4, 99, 200, 7], [5, 6, 7, 8, 9, 10]]
BUCKET_BYTES = 128 * 1024
TOLERANCE = 2e-4
"""Between two programs that compute the same float32 model."""


class Rig:
    """A server, a receiver and a publisher for both."""

    def __init__(self, root: Path) -> None:
        base = write_tiny_model(root / "base", seed=0)
        self.server = EngineProcess.start(launch_settings(base, device="cpu"), log=root / "engine.log")
        self.facade = FacadeProcess(root, base=base, deadline_s=20.0)
        asyncio.run(self.server.wait_ready())
        self.engine = SGLangEngine(self.server.url)
        self.publisher = CollectivePublisher(
            CollectiveConfig(run_id="run", incarnation_id="life", group_timeout_s=20.0, probe_timeout_s=15.0),
            receiver=facade_engine(self.facade),
            engines=[self.engine],
        )

    def close(self) -> None:
        self.publisher.close()
        self.engine.close()
        asyncio.run(self.server.stop())
        self.facade.close()

    def publish(self, version: int) -> SyncReport:
        """A sync of the model whose seed is the version."""
        self.publisher.begin(version)
        for bucket in bucketize(named_tensors(version), BUCKET_BYTES):
            self.publisher.put_bucket(bucket)
        return self.publisher.commit()

    def outcomes(self, number: int) -> list[SyncOutcome]:
        found: list[SyncOutcome] = []
        deadline = time.monotonic() + 60.0
        while len(found) < number and time.monotonic() < deadline:
            found += self.publisher.outcomes()
            time.sleep(0.02)
        assert len(found) == number, found
        return found

    def engine_logprobs(self) -> torch.Tensor:
        async def ask() -> list[list[float]]:
            async with SGLangClient(self.server.url) as client:
                await client.flush_until_idle(deadline_s=30.0)
                return await client.logprobs(TOKENS)

        return torch.tensor([value for row in asyncio.run(ask()) for value in row])

    def engine_label(self) -> str:
        async def ask() -> str:
            async with SGLangClient(self.server.url) as client:
                return (await client.model_info()).weight_version

        return asyncio.run(ask())

    def check(self, version: int, *, sealed: bool = True) -> None:
        """Engine and store hold the weights of this version."""
        wanted = logprobs(tiny_qwen2(seed=version))
        assert self.engine_label() == str(version)
        assert (self.engine_logprobs() - wanted).abs().max() < TOLERANCE
        if sealed:
            path = self.facade.read(lambda store: store.path(store.stable().policy_version))
            model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
            assert torch.equal(logprobs(model), wanted)


def named_tensors(version: int) -> list[tuple[str, torch.Tensor]]:
    return list(tiny_qwen2(seed=version).state_dict().items())


def logprobs(model: Any) -> torch.Tensor:
    """Log-probabilities of TOKENS, each but the first of a row, from torch."""
    values: list[torch.Tensor] = []
    with torch.no_grad():
        for row in TOKENS:
            ids = torch.tensor([row])
            scores = torch.log_softmax(model(ids).logits[0, :-1].float(), dim=-1)
            values.append(scores.gather(1, ids[0, 1:, None])[:, 0])
    return torch.cat(values)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("rig"))
    yield rig
    rig.close()


def test_the_receiver_and_a_rollout_engine_follow_each_sync_and_each_other_s_absence(rig: Rig) -> None:
    assert (logprobs(tiny_qwen2(seed=1)) - logprobs(tiny_qwen2(seed=2))).abs().max() > 100 * TOLERANCE

    for version in (1, 2):
        assert rig.publish(version).published
        assert rig.outcomes(1)[0].state == "sealed"
        rig.check(version)

    # The receiver is gone between syncs: the engine goes on alone.
    rig.facade.signal(signal.SIGKILL)
    assert not rig.publish(3).published
    rig.check(3, sealed=False)
    rig.facade.start()
    assert rig.publish(4).published
    assert [outcome.state for outcome in rig.outcomes(2)] == ["discarded", "sealed"]
    rig.check(4)
    assert rig.facade.sealed("life") == [1, 2, 4]


def test_a_server_that_others_loaded_is_taken_for_a_new_one(rig: Rig) -> None:
    async def load() -> None:
        async with SGLangClient(rig.server.url) as client:
            await client.flush_until_idle(deadline_s=30.0)
            await client.load_from_disk(rig.facade.config.base, "elsewhere", timeout_s=30.0)

    rig.publish(8)
    rig.outcomes(1)
    before = rig.engine.alive(15.0)
    asyncio.run(load())
    assert rig.engine.alive(15.0) != before
    assert rig.publish(9).published
    rig.outcomes(1)
    rig.check(9)


def test_a_dead_server_is_left_out_and_the_receiver_goes_on(rig: Rig) -> None:
    asyncio.run(rig.server.stop())
    assert rig.publish(10).published
    assert rig.outcomes(1)[0].state == "sealed"
