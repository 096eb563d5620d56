"""The colocated updater: a dense model comes from rank 0, routed experts from all ranks of one engine."""

from __future__ import annotations

from typing import Any

import torch
from fakes.recording_publisher import RecordingPublisher
from fakes.slime_standins import NamedTensors, UpdateWeightFromTensor

from slime_patch.tap import SyncNote
from slime_patch.tensor_tap import TensorTap

DENSE = {"embed": torch.ones(4), "norm": torch.zeros(2)}


def chunks(tensors: dict[str, torch.Tensor]) -> list[NamedTensors]:
    return [[(name, tensor)] for name, tensor in tensors.items()]


class Rank:
    """One rank of `world`; two engines of two ranks, experts dealt to the ranks of each engine."""

    def __init__(self, rank: int, *, experts: bool, staging_bytes: int = 1000) -> None:
        own = (
            {f"layers.0.mlp.experts.{rank % 2}.weight": torch.full((3,), float(rank % 2))} if experts else {}
        )
        self.updater = UpdateWeightFromTensor(rank, lambda: chunks(DENSE), lambda: chunks(own))
        self.publishers: list[RecordingPublisher] = []
        self.made: list[tuple[str, tuple[str, ...], int]] = []
        engine = [0, 1] if rank < 2 else [2, 3]
        self.tap = TensorTap(
            self.updater, self.make, staging_bytes=staging_bytes, engine_ranks=lambda: engine
        )

    def make(self, source: str, sources: tuple[str, ...], slot_bytes: int) -> RecordingPublisher:
        self.made.append((source, sources, slot_bytes))
        self.publishers.append(RecordingPublisher(slot_bytes))
        return self.publishers[-1]

    def sent(self) -> list[Any]:
        return [name for entry in self.publishers[0].log if entry[0] == "put_bucket" for name in entry[1]]


def test_a_dense_model_comes_from_rank_0_alone() -> None:
    ranks = [Rank(number, experts=False) for number in range(4)]
    for rank in ranks:
        rank.updater.update_weights()
    assert [len(rank.publishers) for rank in ranks] == [1, 0, 0, 0]
    assert ranks[0].made == [("rank_0", ("rank_0",), 1000)]
    assert ranks[0].sent() == ["embed", "norm"]
    assert [rank.updater.sent for rank in ranks] == [[["embed"], ["norm"]]] * 4


def test_routed_experts_come_from_all_ranks_of_the_first_engine_and_dense_tensors_once() -> None:
    ranks = [Rank(number, experts=True) for number in range(4)]
    for rank in ranks:
        rank.updater.update_weights()
    assert [len(rank.publishers) for rank in ranks] == [1, 1, 0, 0]
    assert [rank.made[0][:2] for rank in ranks[:2]] == [
        ("rank_0", ("rank_0", "rank_1")),
        ("rank_1", ("rank_0", "rank_1")),
    ]
    assert ranks[0].sent() == ["embed", "norm", "layers.0.mlp.experts.0.weight"]
    assert ranks[1].sent() == ["layers.0.mlp.experts.1.weight"]


def test_what_slime_sends_and_gets_back_is_as_without_the_tap() -> None:
    rank, plain = Rank(0, experts=True), UpdateWeightFromTensor(0, lambda: chunks(DENSE))
    assert rank.updater._send_hf_params([]) == plain._send_hf_params([])
    rank.tap.note = SyncNote(wanted=False)
    rank.updater.update_weights()
    assert rank.publishers == []


def test_a_rank_whose_experts_do_not_fit_gets_more_room_at_the_next_update() -> None:
    rank = Rank(1, experts=True, staging_bytes=20)
    for _ in range(2):
        rank.updater.update_weights()
    assert [slot for _, _, slot in rank.made] == [12, 64]


def test_other_engines_after_a_recovery_are_other_sources() -> None:
    rank = Rank(0, experts=True)
    rank.updater.update_weights()
    rank.updater._expert_transfer_plan = []
    rank.updater.update_weights()
    assert [sources for _, sources, _ in rank.made] == [("rank_0", "rank_1"), ("rank_0",)]
    assert rank.publishers[0].closed
