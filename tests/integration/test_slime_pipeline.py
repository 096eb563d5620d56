"""Two pipeline ranks, two processes, one mixture-of-experts model: the tap, the mailbox and the store."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes.moe_model import MODEL
from fakes.receiving import Desk
from fakes.sync import content, write_base

from live_eval.mailbox import Mailbox
from live_eval.subscriber.mail_reader import MailReader

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 120.0


class Ranks:
    """Both processes."""

    def __init__(self, mailbox: Path) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(ROOT / "tests/fakes/pipeline_rank.py"), str(mailbox), str(rank)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "", "OMP_NUM_THREADS": "1"},
            )
            for rank in range(2)
        ]

    def update(self, *commands: str) -> None:
        """One command a rank; returns when both updates are over."""
        for process, command in zip(self._processes, commands, strict=True):
            assert process.stdin is not None
            process.stdin.write(command + "\n")
            process.stdin.flush()
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "done\n"

    def close(self) -> None:
        for process in self._processes:
            process.communicate(timeout=WAIT_S)


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path / "mail")
    yield made
    made.close()


def test_each_version_is_whole_and_one_that_a_rank_did_not_send_is_none(tmp_path: Path, ranks: Ranks) -> None:
    desk = Desk.open(tmp_path / "store", write_base(tmp_path / "base", tensors=MODEL), keep_newest=9)
    reader = MailReader(Mailbox(tmp_path / "mail"), desk.receiver)

    def read_until(holds: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while len(desk.store.records()) < holds:
            reader.run_once()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    ranks.update("sync 1", "sync 1")
    read_until(1)
    ranks.update("sync 2", "skip 2")
    ranks.update("sync 3", "sync 3")
    read_until(3)
    assert [record.weight_version for record in desk.store.sealed()] == [1, 3]
    assert desk.reasons() == [(2, "source_deadline")]
    for version in (1, 3):
        desk.store.verify(version)
        found = {meta.name: desk.content(version, meta) for meta in MODEL}
        assert all(np.array_equal(found[meta.name], content(meta, version)) for meta in MODEL)
    desk.close()
