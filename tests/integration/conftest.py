"""What tests of whole jobs share: one base model, and one real engine for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import job_engine
from fakes.job_gate import EngineGate


@pytest.fixture(scope="session")
def job_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint from which every job's training starts."""
    from fakes.tiny_model import write_tiny_model

    return write_tiny_model(tmp_path_factory.mktemp("base") / "base", seed=0)


@pytest.fixture(scope="session")
def job_engine_url(job_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a real SGLang server that outlives every service; a start costs 10 to 20 seconds."""
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with job_engine.real_engine(job_base, log) as process:
        yield process.url


@pytest.fixture
def gate(job_engine_url: str) -> Iterator[EngineGate]:
    """The shared engine behind a gate that the test works."""
    with EngineGate(job_engine_url) as made:
        yield made
