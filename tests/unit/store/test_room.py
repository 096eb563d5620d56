"""Whatever happens in whatever order, the budget holds, what runs stays, and what goes is on record."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from live_eval.errors import NoSuchVersion, StoreError, StoreFull
from live_eval.reasons import DiscardReason
from live_eval.store import FRESH_OWNER, Catalogue, CollectReason, Manifest, PinKind, VersionState
from live_eval.store.directories import StoreDirectories
from live_eval.store.records import DROPPABLE
from live_eval.store.room import Room

BUDGET = 100
KEEP = 2


def manifest(version: int) -> Manifest:
    return Manifest(
        policy_version=version,
        weight_version=version,
        incarnation=1,
        run_id="run",
        num_tensors=1,
        num_bytes=1,
        digest=str(version),
        began_at=1.0,
        sealed_at=2.0,
        tensors=(),
    )


class StoreLife(RuleBasedStateMachine):
    """A receiver and a service acting on one catalogue; a model of who holds what beside it."""

    def __init__(self) -> None:
        super().__init__()
        root = Path(tempfile.mkdtemp())
        self.directories = StoreDirectories(root)
        self.directories.create()
        self.catalogue = Catalogue.open(self.directories.catalogue)
        self.catalogue.database.read("PRAGMA synchronous=OFF")  # no power cut in here
        self.room = Room(self.catalogue.database, self.directories, max_bytes=BUDGET, keep_newest=KEEP)
        self.incarnation = self.catalogue.register_incarnation("life", 1)
        self.last = 0
        self.receiving: int | None = None
        self.pins: dict[int, dict[str, PinKind]] = {}
        """Pins of the versions that this test believes to be sealed."""

    def teardown(self) -> None:
        self.catalogue.close()
        shutil.rmtree(self.directories.root)

    def forget_collected(self) -> None:
        """Take over what the store gave up, after checking that it was allowed to."""
        for record in self.catalogue.versions(VersionState.COLLECTED):
            pins = self.pins.pop(record.policy_version, None)
            if pins is not None:
                assert set(pins.values()) <= DROPPABLE
                assert (record.reason == CollectReason.STORE_FULL) == bool(pins)

    @precondition(lambda self: self.receiving is None)
    @rule(size=st.integers(1, 70))
    def begin(self, size: int) -> None:
        self.last = self.catalogue.allocate(self.incarnation, self.last + 1)
        firm = sum(
            self.room_of(version)
            for version, pins in self.pins.items()
            if not set(pins.values()) <= DROPPABLE
        )
        waiting = {version for version, pins in self.pins.items() if pins}
        try:
            self.room.reserve(self.last, size)
        except StoreFull:
            assert firm + size > BUDGET
            self.catalogue.mark_discarded(self.last, DiscardReason.STORE_FULL, "")
            assert waiting <= {
                record.policy_version for record in self.catalogue.versions(VersionState.SEALED)
            }
        else:
            assert firm + size <= BUDGET
            self.directories.staging_of(self.last).mkdir()
            self.receiving = self.last
        self.forget_collected()

    def room_of(self, version: int) -> int:
        (row,) = self.catalogue.database.read("SELECT bytes FROM versions WHERE policy_version = ?", version)
        return row["bytes"]

    @precondition(lambda self: self.receiving is not None)
    @rule(less=st.integers(0, 5))
    def seal(self, less: int) -> None:
        assert self.receiving is not None
        self.directories.publish(self.receiving)
        size = max(0, self.room_of(self.receiving) - less)
        self.catalogue.mark_sealed(manifest(self.receiving), disk_bytes=size)
        self.pins[self.receiving] = {FRESH_OWNER: PinKind.FRESH}
        self.receiving = None

    @precondition(lambda self: self.receiving is not None)
    @rule()
    def discard(self) -> None:
        assert self.receiving is not None
        self.directories.remove_staging(self.receiving)
        assert self.catalogue.mark_discarded(self.receiving, DiscardReason.PUBLISHER_ABORTED, "")
        self.receiving = None

    @precondition(lambda self: self.receiving is not None)
    @rule(size=st.integers(1, 100))
    def grow(self, size: int) -> None:
        assert self.receiving is not None
        size = max(size, self.room_of(self.receiving))
        try:
            self.room.reserve(self.receiving, size)
        except StoreFull:
            pass
        else:
            assert self.room_of(self.receiving) == size
        self.forget_collected()

    @rule(version=st.integers(1, 12), owner=st.sampled_from("ab"), kind=st.sampled_from(PinKind))
    def pin(self, version: int, owner: str, kind: PinKind) -> None:
        if version in self.pins:
            self.catalogue.pin(version, owner, kind)
            self.pins[version][owner] = kind
        else:
            with pytest.raises(NoSuchVersion):
                self.catalogue.pin(version, owner, kind)

    @rule(version=st.integers(1, 12), owner=st.sampled_from(["a", "b", FRESH_OWNER]))
    def unpin(self, version: int, owner: str) -> None:
        held = self.pins.get(version, {}).pop(owner, None)
        assert self.catalogue.unpin(version, owner) == (held is not None)

    @rule(version=st.integers(1, 12), owner=st.sampled_from("ab"))
    def upgrade(self, version: int, owner: str) -> None:
        held = owner in self.pins.get(version, {})
        assert self.catalogue.upgrade(version, owner) == held
        if held:
            self.pins[version][owner] = PinKind.RUNNING

    @rule()
    def collect(self) -> None:
        gone = self.room.collect()
        assert {reason for _, reason in gone} <= {CollectReason.RETENTION}
        self.forget_collected()

    @invariant()
    def the_budget_holds(self) -> None:
        assert self.room.used_bytes() <= BUDGET

    @invariant()
    def what_is_believed_to_be_sealed_is_sealed_and_there(self) -> None:
        sealed = [record.policy_version for record in self.catalogue.versions(VersionState.SEALED)]
        assert sealed == sorted(self.pins)
        assert self.directories.version_numbers() == sealed

    @invariant()
    def every_number_is_accounted_for(self) -> None:
        records = self.catalogue.versions()
        assert [record.policy_version for record in records] == list(range(1, self.last + 1))
        for record in records:
            ended = record.state in (VersionState.DISCARDED, VersionState.COLLECTED)
            assert bool(record.reason) == ended == (record.ended_at is not None)
        assert {pin.policy_version for pin in self.catalogue.pins()} <= self.pins.keys()


TestStoreLife = StoreLife.TestCase
TestStoreLife.settings = settings(max_examples=40, stateful_step_count=30)


def test_a_directory_that_cannot_be_removed_still_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = StoreDirectories(tmp_path)
    directories.create()
    catalogue = Catalogue.open(directories.catalogue)
    room = Room(catalogue.database, directories, max_bytes=BUDGET, keep_newest=1)
    incarnation = catalogue.register_incarnation("life", 1)
    catalogue.allocate(incarnation, 1)
    room.reserve(1, 60)
    catalogue.mark_sealed(manifest(1), disk_bytes=60)
    catalogue.unpin(1, FRESH_OWNER)

    def stuck(self: StoreDirectories, version: int, *, keep_spares: bool) -> None:
        raise PermissionError("not yours")

    with monkeypatch.context() as patch:
        patch.setattr(StoreDirectories, "remove_version", stuck)
        catalogue.allocate(incarnation, 2)
        with pytest.raises(StoreError, match="cannot be removed: not yours"):
            room.reserve(2, 60)
        assert catalogue.get(1).state is VersionState.COLLECTED
        assert room.used_bytes() == 60
    room.reserve(2, 60)
    assert room.used_bytes() == 60
    catalogue.close()
