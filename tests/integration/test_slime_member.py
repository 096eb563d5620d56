"""The receiver as one more engine of slime's distributed updater, in a real gloo group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes.member_wire import LocalWire
from fakes.slime_ranks import Rank, ranks_at, whole
from fakes.store_content import stored_content, stored_record

from slime_patch.member import PROBE_TIMEOUT_S

if TYPE_CHECKING:
    from fakes.slime_standins import NamedTensors

Join = Callable[..., list[Rank]]


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[LocalWire]:
    made = LocalWire(tmp_path)
    yield made
    made.close()


@pytest.fixture
def join(wire: LocalWire) -> Iterator[Join]:
    """join(number of pipeline ranks) -> these ranks."""
    all_ranks: list[Rank] = []

    def joined(number: int = 1) -> list[Rank]:
        all_ranks.extend(ranks_at(wire, number))
        return all_ranks

    yield joined
    for rank in all_ranks:
        rank.close()


def test_a_version_is_what_was_broadcast_and_an_unwanted_update_is_received_and_dropped(
    wire: LocalWire, join: Join
) -> None:
    (rank,) = join()
    for version in (1, 2, 3):
        rank.sync(version, wanted=version != 2)
        if version != 2:
            outcome = rank.outcome(version)
            assert (outcome.state, outcome.detail) == ("sealed", "")
            held_s = stored_record(wire.store, outcome.policy_version).held_s
            assert held_s is not None and 0 < held_s < 30.0
            assert stored_content(wire.store, outcome.policy_version) == whole(version)
    assert rank.updater.num_groups == 1


def test_two_pipeline_ranks_make_one_version(wire: LocalWire, join: Join) -> None:
    ranks = join(2)
    for version in (1, 2):
        for rank in ranks:
            rank.sync(version)
        assert {rank.outcome(version).state for rank in ranks} == {"sealed"}
        assert stored_content(wire.store, version) == whole(version)


def test_a_receiver_that_dies_between_updates_costs_one_version_and_comes_back(
    wire: LocalWire, join: Join
) -> None:
    (rank,) = join()
    rank.sync(1)
    assert rank.outcome(1).state == "sealed"
    wire.kill()
    rank.sync(2)
    assert not rank.updater.rollout_engines
    wire.revive()
    rank.sync(3)
    lost = rank.outcome(2)
    assert (lost.state, lost.reason) == ("discarded", "receiver_restarted")
    assert stored_content(wire.store, rank.outcome(3).policy_version) == whole(3)
    assert (rank.updater.num_groups, rank.lock.log) == (3, ["acquire", "release"] * 2)


def test_a_frozen_receiver_costs_one_question_and_is_taken_in_again(wire: LocalWire, join: Join) -> None:
    (rank,) = join()
    rank.sync(1)
    wire.link.frozen = True
    for version in (2, 3, 4):
        rank.sync(version)
    assert wire.link.waited_s == PROBE_TIMEOUT_S
    assert rank.updater.num_groups == 2
    wire.link.frozen = False
    rank.sync(5)
    assert rank.updater.num_groups == 3
    assert rank.outcome(5).state == "sealed"


def test_a_job_whose_receiver_is_not_there_at_the_start_trains(wire: LocalWire, join: Join) -> None:
    wire.kill()
    (rank,) = join()
    rank.sync(1)
    assert (rank.updater.num_groups, rank.updater.calls) == (1, ["chunk"] * 4)
    wire.revive()
    rank.sync(2)
    assert stored_content(wire.store, rank.outcome(2).policy_version) == whole(2)


def test_engines_that_slime_connects_anew_after_a_recovery_have_the_receiver_among_them(
    wire: LocalWire, join: Join
) -> None:
    (rank,) = join()
    rank.sync(1)
    rank.updater.connect_rollout_engines([], rank.lock, engine_gpu_counts=[])
    rank.sync(2)
    assert rank.outcome(2).state == "sealed"
    assert (rank.updater.num_groups, rank.lock.log) == (2, [])


def test_a_receiver_that_dies_within_an_update_ends_it_as_an_engine_would_and_leaves_no_version(
    wire: LocalWire, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rank,) = join()
    rank.sync(1)
    send = rank.updater._update_bucket_weights_from_distributed
    sent: list[int] = []

    def die_before_the_third(tensors: NamedTensors) -> None:
        if len(sent) == 2:
            wire.kill()
        sent.append(len(tensors))
        send(tensors)

    monkeypatch.setattr(rank.updater, "_update_bucket_weights_from_distributed", die_before_the_third)
    with pytest.raises(RuntimeError):
        rank.sync(2)
    wire.revive()
    assert (rank.outcome(2).state, rank.outcome(2).policy_version) == ("discarded", 2)
