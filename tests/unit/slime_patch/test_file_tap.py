"""slime's disk updaters: their files become versions, through a mailbox, a reader and a real store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fakes.mail import write_tensors
from fakes.receiving import Desk
from fakes.slime_delta import Content, UpdateWeightFromDiskDelta
from fakes.slime_standins import UpdateWeightFromDisk
from fakes.sync import MODEL, content, write_base

from live_eval.errors import ConfigError
from live_eval.mailbox import Mailbox
from live_eval.subscriber.delta import DeltaTip
from live_eval.subscriber.mail_reader import MailReader
from slime_patch.file_tap import FileTap, Sender
from slime_patch.tap import SyncNote

if TYPE_CHECKING:
    from live_eval.mailbox import Entry

TRAINER = Sender(run_id="run", incarnation_id="life-1")


class Bench:
    """A store, its receiver, and the mailbox below slime's directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.base = write_base(root / "base", tied=True)
        self.mailbox = Mailbox(root / "weights" / "live_eval")
        self.open()

    def open(self) -> None:
        self.desk = Desk.open(self.root / "store", self.base, keep_newest=9)
        self.tip = DeltaTip(self.root / "delta", self.base)
        self.reader = MailReader(self.mailbox, self.desk.receiver, tip=self.tip)

    def restart(self) -> None:
        self.desk.close()
        self.open()

    def tap(self, updater: Any, *, main: bool = True, deltas: bool = False) -> FileTap:
        return FileTap(updater, self.mailbox, TRAINER, main=main, deltas=deltas)

    def holds(self, version: int, weights: Content) -> bool:
        return all((self.desk.content(version, each) == weights[each.name]).all() for each in MODEL)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.desk.close()


def weights_of(version: int) -> Content:
    return {each.name: content(each, version) for each in MODEL}


def write(directory: Path, version: int) -> None:
    write_tensors(directory / "model-00001-of-00002.safetensors", MODEL[:2], version)
    write_tensors(directory / "model-00002-of-00002.safetensors", MODEL[2:], version)


# --- full checkpoints ---------------------------------------------------------------------


def test_a_version_is_kept_although_slime_deletes_its_files(bench: Bench) -> None:
    updater = UpdateWeightFromDisk(bench.root / "weights", write)
    tap = bench.tap(updater)
    for version in (1, 2):
        tap.note = SyncNote(rollout_id=version - 2 if version > 1 else None, train_step=version - 1)
        updater.update_weights()
        shutil.rmtree(bench.root / "weights" / f"weight_v{version:06d}")
        bench.reader.run_once()
        assert bench.holds(version, weights_of(version))
    record = bench.desk.store.get(2)
    assert record.held_s is not None and 0 < record.held_s < 5.0
    assert (record.weight_version, record.rollout_id, record.train_step) == (2, 0, 1)


def test_a_trainer_that_is_made_anew_goes_on_counting_in_the_same_life(bench: Bench) -> None:
    for version in (1, 2):
        updater = UpdateWeightFromDisk(bench.root / "weights", write)
        updater.weight_version = version - 1  # as --release-train starts it
        bench.tap(updater)
        updater.update_weights()
    assert bench.reader.run_once() == 2
    assert bench.holds(2, weights_of(2))


def test_an_update_that_is_not_wanted_is_not_linked_and_other_ranks_do_nothing(bench: Bench) -> None:
    updater = UpdateWeightFromDisk(bench.root / "weights", write)
    bench.tap(updater).note = SyncNote(wanted=False)
    updater.update_weights()
    other = UpdateWeightFromDisk(bench.root / "weights", write)
    bench.tap(other, main=False)
    assert other._post_write_hook is None
    assert bench.mailbox.entries() == []


def test_the_users_own_hook_runs_first_and_its_errors_are_its_own(bench: Bench) -> None:
    calls: list[tuple[Any, ...]] = []

    def hook(args: Any, directory: str, engines: list[Any]) -> None:
        calls.append((Path(directory).name, engines, len(bench.mailbox.entries())))
        if len(calls) == 2:
            raise ConnectionError("upload")

    updater = UpdateWeightFromDisk(bench.root / "weights", write, hook)
    bench.tap(updater)
    updater.update_weights()
    with pytest.raises(ConnectionError, match="upload"):
        updater.update_weights()
    assert calls == [("weight_v000001", ["engine"], 0), ("weight_v000002", ["engine"], 1)]
    assert len(bench.mailbox.entries()) == 1


def test_versions_that_nobody_takes_are_given_up_and_recorded(bench: Bench) -> None:
    updater = UpdateWeightFromDisk(bench.root / "weights", write)
    tap = bench.tap(updater)
    for _ in range(4):
        updater.update_weights()
    bench.reader.run_once()
    assert bench.desk.reasons() == [(3, "publisher_deadline"), (4, "publisher_deadline")]
    assert all(record.held_s is not None for record in bench.desk.store.discarded())
    metrics = tap.meter.metrics()
    assert metrics["live_eval/syncs"] == 4.0
    assert metrics["live_eval/discarded"] == metrics["live_eval/discarded/publisher_deadline"] == 2.0
    assert 0.0 < metrics["live_eval/held_s"] <= metrics["live_eval/max_held_s"]
    updater.update_weights()
    bench.reader.run_once()
    assert bench.holds(5, weights_of(5))


def test_a_directory_that_cannot_be_linked_costs_the_version_and_not_the_training(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(18, "Invalid cross-device link")

    updater = UpdateWeightFromDisk(bench.root / "weights", write)
    tap = bench.tap(updater)
    monkeypatch.setattr(os, "link", refuse)
    updater.update_weights()
    assert tap.meter.num_faults == 0
    bench.reader.run_once()
    assert bench.desk.reasons() == [(1, "publisher_aborted")]
    assert "cross-device" in bench.desk.store.discarded()[0].detail


def test_an_updater_without_the_hook_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="has no weight_version, _post_write_hook"):
        bench.tap(object())


# --- deltas -------------------------------------------------------------------------------


class DeltaBench:
    """A trainer whose weights move a little at each step."""

    def __init__(self, bench: Bench, *, encoding: str = "xor", algorithm: str = "xxh3-128") -> None:
        base = {each.name: np.zeros(each.num_bytes, dtype=np.uint8) for each in MODEL}
        self.weights: Content = {name: value.copy() for name, value in base.items()}
        self.bench = bench
        self.history: dict[int, Content] = {}
        self.updater = UpdateWeightFromDiskDelta(
            bench.root / "weights", base, lambda: self._copy(), encoding=encoding, algorithm=algorithm
        )
        self.tap = bench.tap(self.updater, deltas=True)
        self.tap.note = SyncNote(wanted=False)
        self.updater.update_weights()  # takes stock

    def _copy(self) -> Content:
        return {name: value.copy() for name, value in self.weights.items()}

    def step(self, *, wanted: bool = True) -> int:
        for value in list(self.weights.values())[::2]:
            value[1::7] += 3
        version = self.updater.weight_version + 1
        self.tap.note = SyncNote(rollout_id=version - 1, train_step=version, wanted=wanted)
        self.updater.update_weights()
        self.history[version] = self._copy()
        return version

    def entry(self) -> Entry:
        return self.bench.mailbox.entries()[-1]


@pytest.mark.parametrize("encoding", ["xor", "overwrite"])
@pytest.mark.parametrize("algorithm", ["xxh3-128", "adler32"])
def test_deltas_become_whole_versions_from_the_first_trained_one_on(
    bench: Bench, encoding: str, algorithm: str
) -> None:
    trainer = DeltaBench(bench, encoding=encoding, algorithm=algorithm)
    for _ in range(3):
        version = trainer.step()
        bench.reader.run_once()
        assert bench.holds(version, trainer.history[version])
    record = bench.desk.store.get(1)
    assert (record.weight_version, record.rollout_id, record.train_step) == (1, 0, 1)


def test_a_delta_that_is_not_wanted_is_applied_all_the_same(bench: Bench) -> None:
    trainer = DeltaBench(bench)
    trainer.step(wanted=False)
    version = trainer.step()
    bench.reader.run_once()
    assert [record.weight_version for record in bench.desk.store.records()] == [version]
    assert bench.holds(version, trainer.history[version])


def test_a_broken_chain_refuses_every_version_until_a_new_life(bench: Bench) -> None:
    trainer = DeltaBench(bench)
    trainer.step()
    bench.reader.run_once()
    trainer.step()
    trainer.entry().remove()
    trainer.step()
    trainer.step()
    bench.reader.run_once()
    assert [reason for reason in bench.desk.reasons()] == [(3, "incomplete"), (4, "incomplete")]
    bench.restart()
    trainer.step()
    bench.reader.run_once()
    assert "made from version 2, and the last one here is 1" in bench.desk.store.discarded()[-1].detail


def test_damaged_differences_are_seen_by_the_checksum(bench: Bench) -> None:
    trainer = DeltaBench(bench, encoding="overwrite")
    trainer.step()
    bench.tip.apply(trainer.entry())
    bench.tip._memory()[0] ^= 0xFF  # as a disk that forgets
    trainer.step()
    bench.reader.run_once()
    assert (2, "incomplete") in bench.desk.reasons()
    assert "its checksum differs" in bench.desk.store.discarded()[-1].detail


def test_a_reader_that_dies_within_a_delta_applies_the_rest(bench: Bench) -> None:
    trainer = DeltaBench(bench)
    trainer.step()
    bench.reader.run_once()
    trainer.step()
    entry = trainer.entry()
    first = MODEL[0].name
    begin, end = bench.tip._places[first]
    bench.tip._memory()[begin:end] = trainer.history[2][first]  # applied, and then the process died
    bench.restart()
    bench.reader.run_once()
    assert entry.path.exists() is False
    assert bench.holds(2, trainer.history[2])


def test_a_disk_without_room_for_the_base_is_a_broken_chain(bench: Bench) -> None:
    trainer = DeltaBench(bench)
    (bench.root / "delta").write_text("in the way")
    trainer.step()
    bench.reader.run_once()
    assert bench.desk.reasons() == [(1, "incomplete")]
    assert "cannot be copied" in bench.desk.store.discarded()[0].detail


def test_a_new_life_begins_from_the_base_again(bench: Bench) -> None:
    trainer = DeltaBench(bench)
    trainer.step()
    bench.reader.run_once()
    again = DeltaBench(bench)
    again.tap._sender = Sender(run_id="run", incarnation_id="life-2")
    again.step()
    again.step()
    bench.reader.run_once()
    assert bench.desk.store.records()[-1].weight_version == 2
    assert bench.holds(bench.desk.store.records()[-1].policy_version, again.history[2])
