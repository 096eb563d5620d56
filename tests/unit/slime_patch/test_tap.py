"""The tap: everything is handed over, and nothing of it can hurt the training."""

from __future__ import annotations

import time

import pytest
import torch
from fakes.recording_publisher import RecordingPublisher
from fakes.slime_standins import NamedTensors, UpdateWeightFromDistributed

from live_eval.errors import ConfigError
from protocol.messages import SyncOutcome
from slime_patch.tap import SyncNote, WeightTap
from slime_patch.tap_plan import TapPlan


class Bench:
    """An updater with two buckets, tapped."""

    def __init__(self, *, is_source: bool = True, slot_bytes: int = 1 << 20) -> None:
        self.weights = {"a": torch.ones(4), "b": torch.zeros(3, dtype=torch.bfloat16)}
        self.updater = UpdateWeightFromDistributed(self.chunks, is_source=is_source)
        self.publishers: list[RecordingPublisher] = []
        self.tap = WeightTap(self.updater, self.make, slot_bytes=slot_bytes)

    def chunks(self) -> list[NamedTensors]:
        return [[(name, tensor)] for name, tensor in self.weights.items()]

    def make(self, slot_bytes: int) -> RecordingPublisher:
        self.publishers.append(RecordingPublisher(slot_bytes))
        return self.publishers[-1]


def test_one_update_is_one_sync_with_its_rollout() -> None:
    bench = Bench()
    bench.tap.note = SyncNote(rollout_id=4, train_step=10)
    bench.updater.update_weights()
    assert bench.publishers[0].log == [
        ("begin", 1, 4, 10), ("put_bucket", ["a"]), ("put_bucket", ["b"]), ("commit",),
    ]  # fmt: skip


def test_the_update_itself_is_as_without_the_tap() -> None:
    bench, plain = (
        Bench(),
        UpdateWeightFromDistributed(lambda: [[("a", torch.ones(1))], [("b", torch.ones(1))]]),
    )
    bench.updater.update_weights()
    plain.update_weights()
    assert (bench.updater.calls, bench.updater.sent) == (plain.calls, plain.sent)
    assert bench.updater.weight_version == 1


def test_weights_may_change_in_place_as_soon_as_the_update_returns() -> None:
    bench = Bench()
    bench.updater.update_weights()
    bench.weights["a"].fill_(7.0)
    assert torch.equal(bench.publishers[0].tensors["a"], torch.ones(4))


def test_ranks_that_are_no_source_publish_nothing() -> None:
    bench = Bench(is_source=False)
    bench.updater.update_weights()
    assert bench.publishers == []


def test_an_update_that_is_not_wanted_is_not_copied() -> None:
    bench = Bench()
    bench.updater.update_weights()
    bench.tap.note = SyncNote(rollout_id=0, wanted=False)
    bench.updater.update_weights()
    bench.tap.note = SyncNote(rollout_id=1)
    bench.updater.update_weights()
    assert [entry[1:] for entry in bench.publishers[0].log if entry[0] == "begin"] == [
        (1, None, None),
        (3, 1, None),
    ]


@pytest.mark.parametrize("step", ["begin", "put_bucket", "commit"])
def test_a_fault_of_the_publisher_never_reaches_the_trainer(step: str) -> None:
    bench = Bench()
    bench.updater.update_weights()
    bench.publishers[0].fails_at = step
    bench.updater.update_weights()
    assert bench.tap.meter.num_faults == 1
    assert bench.updater.calls.count("continue") == 2
    bench.publishers[0].fails_at = ""
    bench.updater.update_weights()
    assert bench.publishers[0].log[-1] == ("commit",)


def test_what_updates_cost_and_what_was_discarded_is_there_for_the_trainers_log() -> None:
    bench = Bench()
    bench.updater.update_weights()
    bench.publishers[0].ended = [
        SyncOutcome(sync_id="life/1", weight_version=1, state="discarded", reason="store_full", detail="")
    ]
    bench.updater.update_weights()
    assert bench.tap.meter.metrics() == {
        "live_eval/held_s": 0.25,
        "live_eval/max_held_s": 0.25,
        "live_eval/syncs": 2.0,
        "live_eval/discarded": 1.0,
        "live_eval/discarded/store_full": 1.0,
        "live_eval/faults": 0.0,
    }


def test_an_error_of_the_update_comes_out_as_it_is_and_the_sync_is_given_up() -> None:
    bench = Bench()
    bench.updater.update_weights()
    bench.updater.fails_with = ConnectionError("an engine died")
    with pytest.raises(ConnectionError, match="an engine died"):
        bench.updater.update_weights()
    assert bench.publishers[0].log[-1] == ("abort", "the update failed: ConnectionError")


def test_staging_that_was_too_small_is_larger_for_the_next_sync() -> None:
    bench = Bench(slot_bytes=8)
    bench.updater.update_weights()
    bench.updater.update_weights()
    assert bench.publishers[0].closed
    assert bench.publishers[1].slot_bytes > 16 + 6


def test_an_updater_without_the_seams_is_refused() -> None:
    class Other:
        weight_version = 0

        def update_weights(self) -> None: ...

    with pytest.raises(ConfigError, match="Other has no _on_chunk"):
        WeightTap(Other(), RecordingPublisher, slot_bytes=1)  # type: ignore[arg-type]


def test_close_lets_the_last_version_be_handed_over() -> None:
    bench = Bench()
    bench.tap.close(1.0)
    bench.updater.update_weights()
    bench.tap.close(1.0)
    assert bench.publishers[0].closed


def test_pipeline_ranks_are_the_sources_and_share_the_staging() -> None:
    plan = TapPlan(
        kind="broadcast",
        transport="ray",
        receiver="r",
        namespace="n",
        run_id="i",
        incarnation_id="x",
        num_sources=2,
        staging_bytes=1000,
        deadline_s=1.0,
    )
    assert plan.sources == ("pp_0", "pp_1")
    assert 500 < plan.slot_bytes < 1000
    assert TapPlan(**plan.as_dict()) == plan


def test_what_the_first_update_waits_for_its_staging_counts_as_held() -> None:
    bench = Bench()
    make = bench.make

    def slowly(slot_bytes: int) -> RecordingPublisher:
        time.sleep(0.3)
        return make(slot_bytes)

    tap = WeightTap(bench.updater, slowly, slot_bytes=1 << 20)
    tap.note = SyncNote(rollout_id=0)
    bench.tap.note = SyncNote(wanted=False)
    bench.updater.update_weights()
    assert bench.publishers[0].held_before >= 0.3
    bench.updater.update_weights()
    assert bench.publishers[0].held_before < 0.3
