"""A service that watches folders goes on watching, whatever cannot be read for a while."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fakes.checkpoints import Model

from live_eval import service
from live_eval.config import ServiceConfig, StoreSettings
from live_eval.evaluation.datasets import EvalSetConfig
from live_eval.results.ledger import Ledger
from live_eval.scheduling.config import SchedulerConfig
from protocol.messages import TrainingEnded


@dataclass
class FakeCoordinator:
    """Takes what is submitted."""

    submitted: list[str] = field(default_factory=list)
    ended: bool = False

    def submit_checkpoint(self, path: str, *, checked: bool) -> tuple[str, ...]:
        assert checked
        self.submitted.append(Path(path).name)
        return (path,)

    def training_ended(self) -> None:
        self.ended = True


@pytest.fixture
def watching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> service.Service:
    monkeypatch.setattr(service, "LAST_LOOK_S", 0.01)
    Model(seed=3).write(tmp_path / "saved" / "step_5")
    config = ServiceConfig(
        run_id="run",
        run_dir=tmp_path,
        base=tmp_path,
        datasets=(EvalSetConfig(name="a", path=Path("a.jsonl")),),
        scheduler=SchedulerConfig(datasets=("a",)),
        store=StoreSettings(max_bytes=1),
        checkpoint_watch=(tmp_path / "saved",),
    )
    return service.Service(config)


async def test_a_ledger_that_cannot_be_read_now_ends_no_watch(
    watching: service.Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator: Any = FakeCoordinator()
    await watching._look(coordinator)
    assert "the folders cannot be looked at now: no ledger" in caplog.text
    with Ledger.open(tmp_path / "ledger.sqlite", run_id="run"):
        for _ in range(2):
            await watching._look(coordinator)
    assert coordinator.submitted == ["step_5"]


async def test_nor_does_it_keep_the_end_of_training_from_being_told(watching: service.Service) -> None:
    coordinator: Any = FakeCoordinator()
    watching._coordinator = coordinator
    connection: Any = None
    assert await watching._handle(TrainingEnded(), connection) is None
    assert coordinator.ended
