"""Trainer and eval engines on two nodes of a real Ray: either may go in a sync, and one comes back."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fakes.faulty_syncs import bytes_of, whole
from fakes.ray_site import WAIT_S, RayPlayer
from fakes.slime_standins import ENGINE_FLAGS, NamedTensors, UpdateWeightFromDistributed, slime_args
from fakes.store_content import stored_content
from fakes.sync import MODEL, begin, bucket, content, write_base
from fakes.two_nodes import TwoNodes, two_nodes
from fakes.weights import weights

from live_eval.publisher.ray_link import RayLink
from live_eval.rundir import RunDir
from live_eval.store import VersionStore
from live_eval.subscriber.ray_receiver import RayReceiverConfig, start_ray_receiver
from protocol.messages import BucketHeader, Message, SyncOutcome
from slime_patch import job as job_module
from slime_patch import tap_plan
from slime_patch.arguments import add_arguments
from slime_patch.job import LiveEvalJob
from slime_patch.node_watch import NodeWatch
from slime_patch.settings import settings_of
from slime_patch.tap import WeightTap

if TYPE_CHECKING:
    from slime_patch.service_actor import ServiceState

pytestmark = pytest.mark.ray

DEADLINE_S = 0.5
HELD_S = DEADLINE_S + 2.0
"""Deadline and copy, and what two busy cores add; a wait for Ray to notice would be longer."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    with two_nodes() as found:
        yield found


def test_a_payload_whose_node_has_gone_costs_the_version_and_not_the_next(
    nodes: TwoNodes, tmp_path: Path
) -> None:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    @ray.remote(num_cpus=0)
    class Trainer:
        def put(self, payload: np.ndarray) -> list[Any]:
            # Large enough for the object store of its node, where it dies with it.
            return [ray.put(np.resize(payload, 4 << 20))]

    here = ray.get_runtime_context().get_node_id()
    write_base(tmp_path / "base", tied=True)
    config = RayReceiverConfig(
        store=tmp_path / "store", base=tmp_path / "base", max_bytes=1 << 30, payload_timeout_s=1.0
    )
    receiver: Any = start_ray_receiver(config, name="alone", node_id=here)
    node = nodes.add()
    there = NodeAffinitySchedulingStrategy(node.node_id, soft=False)
    trainer = Trainer.options(scheduling_strategy=there).remote()
    player = RayPlayer(receiver)
    header = bucket(begin(1, incarnation="gone"), 0, *MODEL)
    refs = ray.get(trainer.put.remote(player.pack(header, bytes_of(MODEL))), timeout=WAIT_S)
    player.ask(begin(1, incarnation="gone"))
    nodes.take_away(node)
    began = time.monotonic()
    answer = player.hand_over(header, *refs)
    assert time.monotonic() - began < 20.0
    assert isinstance(answer, SyncOutcome)
    assert (answer.state, answer.reason) == ("discarded", "payload_lost")
    assert whole(player, begin(1, incarnation="next")).state == "sealed"
    ray.kill(receiver, no_restart=True)


class CutLink(RayLink):
    """Does something when the third bucket of a sync is about to be sent, once."""

    def __init__(self, actor: Any, *, cut: Callable[[], None], find: Callable[[], Any]) -> None:
        super().__init__(actor, find=find, in_place=False)  # both nodes are this host
        self._cut: Callable[[], None] | None = cut

    def start(self, message: Message, payload: Any = None) -> Any:
        if isinstance(message, BucketHeader) and message.index == 2 and self._cut is not None:
            cut, self._cut = self._cut, None
            cut()
        return super().start(message, payload)


class Training:
    """A driver that trains on, with live eval, and its one trainer's updater."""

    def __init__(self, root: Path) -> None:
        write_base(root / "base", tied=True)
        config = {"model_type": "tiny", "tie_word_embeddings": True, "dtype": "float32", "vocab_size": 64}
        (root / "base" / "config.json").write_text(json.dumps(config))
        # So that the model needs no tokenizer, which takes seconds to import.
        (root / "eval.yaml").write_text("live_eval: {defaults: {special_tokens: true}}")
        (root / "toy.jsonl").write_text('{"prompt": "one", "label": "1"}\n')
        words = (
            "--eval-mode latest-synced --eval-num-gpus 1 --eval-sglang-device cpu "
            f"--eval-output-dir {root}/out --eval-sync-deadline-s {DEADLINE_S} "
            f"--eval-prompt-data toy {root}/toy.jsonl --eval-config {root}/eval.yaml"
        ).split()
        register = partial(add_arguments, engine_flags=ENGINE_FLAGS)
        self.args: Namespace = slime_args(words, base=root / "base", register=register)
        settings = settings_of(self.args, words)
        assert settings is not None
        self.job = LiveEvalJob(settings)
        self.store = RunDir(root / "out").store
        self.tap: WeightTap | None = None
        self._version = 0
        self._ended: dict[int, SyncOutcome] = {}

    def start(self, cut: Callable[[], None]) -> None:
        """Live eval first, as in slime's driver, then the trainer with its tap."""
        self.job.start(self.args, {}, None)
        plan = tap_plan.TapPlan(**getattr(self.args, tap_plan.TAP_ATTRIBUTE))

        def find() -> Any:
            import ray

            return ray.get_actor(plan.receiver, namespace=plan.namespace)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tap_plan, "_link", lambda _: CutLink(find(), cut=lambda: cut(), find=find))
            self.publisher = tap_plan._publisher(plan, "pp_0", plan.sources, plan.slot_bytes)
        self.updater = UpdateWeightFromDistributed(self._chunks)
        self.tap = WeightTap(self.updater, lambda _: self.publisher, slot_bytes=plan.slot_bytes)
        self.tap.meter.ended = self._note

    def sync(self) -> float:
        """slime's update of the next version; how long it took."""
        self._version += 1
        began = time.monotonic()
        self.updater.update_weights()
        return time.monotonic() - began

    def outcome(self, version: int) -> SyncOutcome:
        """What became of a version; told to the tap, which asks at each commit, or to this."""
        deadline = time.monotonic() + WAIT_S
        while version not in self._ended:
            assert time.monotonic() < deadline, f"nothing became of version {version}"
            for outcome in self.publisher.outcomes():
                self._note(outcome)
            time.sleep(0.05)
        return self._ended[version]

    def _note(self, outcome: SyncOutcome) -> None:
        self._ended[outcome.weight_version] = outcome

    def serving(self) -> ServiceState:
        import ray

        deadline = time.monotonic() + WAIT_S
        while True:
            state = ray.get(self.job.parts.service.state.remote(), timeout=WAIT_S)
            if state.phase == "serving" or time.monotonic() > deadline:
                return state
            time.sleep(0.2)

    def _chunks(self) -> list[NamedTensors]:
        return [[named] for named in weights(self._version)]

    def close(self) -> None:
        if self.tap is not None:
            self.tap.close(5.0)
        self.job.abandon()


def test_a_node_that_is_taken_away_costs_versions_and_live_eval_goes_on_where_there_is_room(
    nodes: TwoNodes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.setattr(job_module, "NodeWatch", partial(NodeWatch, look_s=0.3))
    log: list[str] = []

    def wait_for(line: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while line not in "".join(log):
            assert time.monotonic() < deadline, "".join(log)
            time.sleep(0.1)
            log.append(capsys.readouterr().out)

    node = nodes.add(num_gpus=1)
    training = Training(tmp_path)
    request.addfinalizer(training.close)
    training.start(cut=lambda: nodes.take_away(node))
    held = [training.sync()]  # its third bucket takes the node away
    wait_for("is gone. Training goes on")
    held += [training.sync() for _ in range(3)]

    node = nodes.add(num_gpus=1)
    wait_for("live eval goes on, on node")
    assert training.job.parts.node_id == node.node_id
    waited = training.outcome(2)  # in its slot; on a busy machine in vain
    assert waited.reason in ("", "receiver_restarted")
    held.append(training.sync())
    assert training.outcome(5).policy_version == 5
    assert stored_content(training.store, 5) == {meta.name: content(meta, 5).tobytes() for meta in MODEL}
    assert training.serving().phase == "serving"

    assert max(held) < HELD_S
    assert training.tap is not None
    assert training.tap.meter.num_faults == 0
    reasons = {version: training.outcome(version).reason for version in (1, 3, 4)}
    assert reasons == {1: "receiver_restarted", 3: "publisher_deadline", 4: "publisher_deadline"}
    with VersionStore.open(training.store, max_bytes=1 << 30, keep_newest=9) as store:
        on_record = {record.weight_version: record.reason for record in store.discarded()}
    assert reasons.items() <= on_record.items()
    log.append(capsys.readouterr().out)
    assert "".join(log).count("is gone. Training") == "".join(log).count("live eval goes on") == 1
