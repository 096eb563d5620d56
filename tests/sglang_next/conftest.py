"""One server of the newest SGLang, from an environment of its own, for all tests here."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.tiny_model import write_tiny_model

from live_eval.engines.launch import EngineProcess, launch_settings

PYTHON = Path(__file__).resolve().parents[2] / ".venv-sglang-next" / "bin" / "python"


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running server, and checkpoints of its model."""

    url: str
    versions: tuple[Path, ...]
    process: EngineProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("next")
    versions = tuple(write_tiny_model(root / f"v{seed}", seed=seed) for seed in range(4))
    settings = launch_settings(versions[0], device="cpu", python=PYTHON)
    process = EngineProcess.start(settings, log=root / "engine.log")
    try:
        asyncio.run(process.wait_ready(600))
        yield Server(url=process.url, versions=versions, process=process)
    finally:
        asyncio.run(process.stop())
