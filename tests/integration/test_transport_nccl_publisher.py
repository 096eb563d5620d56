"""The collective publisher over real gloo: who is in the group, and what a death costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from fakes.facade import REPO, FacadeProcess, facade_engine
from fakes.sync import DOWN, EMBED, MODEL, NORM, UP, content
from fakes.weights import weights

from live_eval.errors import TransportError
from live_eval.publisher.collective import CollectiveConfig, CollectivePublisher
from protocol.messages import SyncOutcome, TensorMeta

if TYPE_CHECKING:
    from live_eval.publisher.base import SyncReport

WAIT_S = 30.0

Publishers = Callable[..., CollectivePublisher]


@pytest.fixture(scope="module")
def facade(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FacadeProcess]:
    """One receiver process; a test that ends it starts it again."""
    facade = FacadeProcess(tmp_path_factory.mktemp("facade"))
    yield facade
    facade.close()


@pytest.fixture
def life(request: pytest.FixtureRequest) -> str:
    """A trainer's life for each test."""
    return request.node.name


@pytest.fixture
def publishers(life: str) -> Iterator[Publishers]:
    """Makes publishers and closes them."""
    made: list[CollectivePublisher] = []

    def make(
        facade: FacadeProcess, *, others: Sequence[FacadeProcess] = (), **settings: Any
    ) -> CollectivePublisher:
        config: dict[str, Any] = {"run_id": "run", "incarnation_id": life, "group_timeout_s": 10.0}
        config |= {"probe_timeout_s": 5.0}
        made.append(
            CollectivePublisher(
                CollectiveConfig(**(config | settings)),
                receiver=facade_engine(facade),
                engines=[facade_engine(other) for other in others],
            )
        )
        return made[-1]

    yield make
    for publisher in made:
        publisher.close(5.0)


def publish(
    publisher: CollectivePublisher, version: int, tensors: Sequence[TensorMeta] = MODEL
) -> SyncReport:
    publisher.begin(version, rollout_id=version - 2, train_step=version * 10)
    for named in weights(version, tensors):
        publisher.put_bucket([named])
    return publisher.commit()


def outcomes(publisher: CollectivePublisher, number: int) -> list[SyncOutcome]:
    found: list[SyncOutcome] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < number and time.monotonic() < deadline:
        found += publisher.outcomes()
        time.sleep(0.02)
    assert len(found) == number, found
    return found


def test_syncs_become_versions_with_the_trainers_bytes(facade: FacadeProcess, publishers: Publishers) -> None:
    publisher = publishers(facade)
    for version in (1, 2, 3):
        report = publish(publisher, version)
        assert (report.published, report.reason) == (True, "")
        (outcome,) = outcomes(publisher, 1)
        assert outcome.state == "sealed"
        assert outcome.policy_version is not None
        manifest = facade.read(lambda store, number=outcome.policy_version: store.verify(number))
        assert (manifest.rollout_id, manifest.train_step) == (version - 2, version * 10)
        record = facade.read(lambda store, number=outcome.policy_version: store.get(number))
        assert record.held_s == report.held_s
        for tensor in MODEL:
            assert facade.content(outcome.policy_version, tensor) == content(tensor, version).tobytes()


def test_what_torch_holds_is_what_arrives(tmp_path: Path, publishers: Publishers) -> None:
    metas = [
        TensorMeta("scalar", "float32", ()),
        TensorMeta("empty", "float32", (0, 3)),
        TensorMeta("fp8", "float8_e4m3fn", (5,)),
        TensorMeta("half", "bfloat16", (3, 2)),
        TensorMeta("mask", "bool", (4,)),
        TensorMeta("strided", "float32", (4, 3)),
    ]
    strided = torch.arange(12.0).reshape(3, 4).t()
    tensors = [
        ("scalar", torch.tensor(2.5)),
        ("empty", torch.empty(0, 3)),
        ("fp8", torch.arange(5.0).to(torch.float8_e4m3fn)),
        ("half", torch.arange(6.0).bfloat16().reshape(3, 2)),
        ("mask", torch.tensor([True, False, True, True])),
        ("strided", strided),
    ]
    from fakes.sync import write_base

    write_base(tmp_path / "odd" / "base", tied=True, tensors=metas)
    facade = FacadeProcess(tmp_path / "odd", base=tmp_path / "odd" / "base")
    publisher = publishers(facade)
    publisher.begin(1)
    publisher.put_bucket(tensors)
    publisher.commit()
    assert outcomes(publisher, 1)[0].state == "sealed"
    assert facade.content(1, metas[5]) == strided.contiguous().numpy().tobytes()
    assert facade.content(1, metas[2]) == tensors[2][1].view(torch.uint8).numpy().tobytes()
    facade.close()


def test_a_truncated_sync_costs_the_version_and_raises_nothing(
    facade: FacadeProcess, publishers: Publishers
) -> None:
    publisher = publishers(facade)
    publish(publisher, 1, (EMBED, UP))
    assert outcomes(publisher, 1)[0].reason == "incomplete"
    publisher.begin(2)
    publisher.put_bucket([("wrong.name", torch.ones(3))])
    publisher.put_bucket(weights(2))
    publisher.commit()
    assert outcomes(publisher, 1)[0].reason == "unknown_tensor"
    publish(publisher, 3)
    assert outcomes(publisher, 1)[0].state == "sealed"


def test_an_abort_and_a_second_begin_give_the_sync_up(facade: FacadeProcess, publishers: Publishers) -> None:
    publisher = publishers(facade)
    publisher.begin(1)
    publisher.put_bucket(weights(1))
    publisher.abort("by hand")
    publisher.begin(2)
    publisher.put_bucket(weights(2))
    publish(publisher, 3)
    found = outcomes(publisher, 3)
    assert [(o.weight_version, o.state, o.reason) for o in found] == [
        (1, "discarded", "publisher_aborted"),
        (2, "discarded", "publisher_aborted"),
        (3, "sealed", ""),
    ]


def test_calls_without_a_sync_and_numbers_that_cannot_be_are_errors(
    facade: FacadeProcess, publishers: Publishers
) -> None:
    publisher = publishers(facade)
    with pytest.raises(TransportError, match="without begin"):
        publisher.put_bucket(weights(1))
    with pytest.raises(TransportError, match="without begin"):
        publisher.commit()
    with pytest.raises(TransportError, match="positive integer"):
        publisher.begin(0)
    publisher.begin(1)
    with pytest.raises(TransportError, match="complex64"):
        publisher.put_bucket([("c", torch.ones(2, dtype=torch.complex64))])
    publish(publisher, 2)
    assert [o.state for o in outcomes(publisher, 2)] == ["discarded", "sealed"]


def test_a_receiver_killed_between_syncs_is_left_out_and_taken_in_again(
    facade: FacadeProcess, publishers: Publishers, life: str
) -> None:
    publisher = publishers(facade)
    publish(publisher, 1)
    assert outcomes(publisher, 1)[0].state == "sealed"
    facade.signal(signal.SIGKILL)
    report = publish(publisher, 2)
    assert (report.published, report.reason) == (False, "receiver_restarted")
    assert report.held_s < 4.5
    facade.start()
    assert publish(publisher, 3).published
    found = outcomes(publisher, 2)
    assert [(o.weight_version, o.state, o.reason) for o in found] == [
        (2, "discarded", "receiver_restarted"),
        (3, "sealed", ""),
    ]
    assert facade.reasons(life) == [(2, "receiver_restarted")]
    assert facade.sealed(life) == [1, 3]


def test_a_receiver_that_was_restarted_between_syncs_is_noticed(
    facade: FacadeProcess, publishers: Publishers
) -> None:
    publisher = publishers(facade)
    publish(publisher, 1)
    outcomes(publisher, 1)
    facade.signal(signal.SIGKILL)
    facade.start()
    assert publish(publisher, 2).published
    assert outcomes(publisher, 1)[0].state == "sealed"


def test_a_receiver_frozen_between_syncs_costs_the_probe(
    facade: FacadeProcess, publishers: Publishers, life: str
) -> None:
    publisher = publishers(facade, probe_timeout_s=2.0)
    publish(publisher, 1)
    outcomes(publisher, 1)
    with facade.frozen():
        report = publish(publisher, 2)
    assert not report.published
    assert report.held_s < 9.0
    assert publish(publisher, 3).published
    assert [o.state for o in outcomes(publisher, 2)] == ["discarded", "sealed"]
    assert facade.sealed(life) == [1, 3]


def test_a_receiver_frozen_while_it_seals_is_left_out_of_the_next_sync(
    facade: FacadeProcess, publishers: Publishers, life: str
) -> None:
    publisher = publishers(facade, seal_wait_s=0.3)
    publisher.begin(1)
    publisher.put_bucket(weights(1))
    with facade.frozen():
        assert publisher.commit().held_s < 4.5
        report = publish(publisher, 2)
    assert (report.published, report.reason) == (False, "publisher_deadline")
    assert report.held_s < 4.5
    assert outcomes(publisher, 1)[0].state == "sealed"
    assert publish(publisher, 3).published
    assert [(o.weight_version, o.state) for o in outcomes(publisher, 2)] == [(2, "discarded"), (3, "sealed")]
    assert facade.reasons(life) == [(2, "publisher_deadline")]
    assert facade.sealed(life) == [1, 3]


def test_a_receiver_killed_during_a_sync_raises_at_once_and_the_next_one_is_whole(
    facade: FacadeProcess, publishers: Publishers, life: str
) -> None:
    publisher = publishers(facade)
    publish(publisher, 1)
    outcomes(publisher, 1)
    publisher.begin(2)
    publisher.put_bucket(weights(2, (EMBED, UP)))
    facade.signal(signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(TransportError, match="bucket 1"):
        publisher.put_bucket(weights(2, (DOWN, NORM)))
    assert time.monotonic() - began < 9.0
    with pytest.raises(TransportError, match="a sync that failed"):
        publisher.commit()
    assert not publish(publisher, 3).published  # training goes on without it
    facade.start()
    assert publish(publisher, 4).published
    found = outcomes(publisher, 3)
    assert [(o.weight_version, o.reason) for o in found] == [
        (2, "receiver_restarted"),
        (3, "receiver_restarted"),
        (4, ""),
    ]
    assert facade.sealed(life) == [1, 4]


def test_a_receiver_frozen_during_a_sync_costs_the_groups_deadline(
    facade: FacadeProcess, publishers: Publishers
) -> None:
    publisher = publishers(facade, group_timeout_s=3.0, probe_timeout_s=1.5)
    publisher.begin(1)
    publisher.put_bucket(weights(1, (EMBED,)))
    began = time.monotonic()
    with facade.frozen(), pytest.raises(TransportError, match="bucket 1"):
        publisher.put_bucket([("model.layers.0.mlp.up_proj.weight", torch.ones(4, 4))])
    assert time.monotonic() - began < 30.0
    assert publish(publisher, 2).published
    assert outcomes(publisher, 2)[1].state == "sealed"


def test_a_trainer_killed_during_a_sync_frees_the_receiver_for_the_next_of_the_same_group(
    facade: FacadeProcess, publishers: Publishers
) -> None:
    script = str(REPO / "tests" / "fakes" / "collective_trainer.py")
    trainer = subprocess.Popen(
        [sys.executable, script, str(facade.config.socket), "slime-pp_0", "attempt-1"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{REPO}:{REPO / 'tests'}"},
    )
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == b"midway\n"
    trainer.kill()
    trainer.communicate()
    deadline = time.monotonic() + WAIT_S
    while not facade.reasons("attempt-1") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert facade.reasons("attempt-1") == [(2, "publisher_lost")]
    publisher = publishers(facade, group_name="slime-pp_0", incarnation_id="attempt-2")
    publish(publisher, 1)
    assert outcomes(publisher, 1)[0].state == "sealed"
    assert facade.sealed("attempt-1") == [1]
    assert facade.sealed("attempt-2") == [1]


def test_two_publishers_are_the_sources_of_one_version(
    facade: FacadeProcess, publishers: Publishers, life: str
) -> None:
    both = {"sources": ("pp_0", "pp_1")}
    first = publishers(facade, source="pp_0", group_name="pp_0", **both)
    second = publishers(facade, source="pp_1", group_name="pp_1", **both)
    for version in (1, 2):
        first.begin(version)
        second.begin(version)
        first.put_bucket(weights(version, (EMBED,)))
        second.put_bucket(weights(version, (DOWN, EMBED)))
        first.put_bucket(weights(version, (UP,)))
        second.put_bucket(weights(version, (NORM,)))
        first.commit()
        second.commit()
        found = outcomes(first, 1) + outcomes(second, 1)
        assert [outcome.state for outcome in found] == ["sealed", "sealed"]
    assert facade.sealed(life) == [1, 2]


def test_a_restarted_trainer_continues_the_policy_versions(
    facade: FacadeProcess, publishers: Publishers, life: str
) -> None:
    numbers: list[int] = []
    for attempt in ("again-1", "again-2"):
        publisher = publishers(facade, incarnation_id=attempt)
        for version in (1, 2):
            publish(publisher, version)
            numbers.append(outcomes(publisher, 1)[0].policy_version or 0)
        publisher.close()
    assert numbers == list(range(numbers[0], numbers[0] + 4))


def test_a_source_that_does_not_hash_is_taken_at_its_word(
    facade: FacadeProcess, publishers: Publishers
) -> None:
    publisher = publishers(facade, source_digests=False)
    publish(publisher, 1)
    assert outcomes(publisher, 1)[0].state == "sealed"


def test_a_full_store_costs_versions_and_raises_nothing(tmp_path: Path, publishers: Publishers) -> None:
    facade = FacadeProcess(tmp_path, max_bytes=1000)
    publisher = publishers(facade)
    for version in (1, 2):
        publish(publisher, version)
        assert outcomes(publisher, 1)[0].reason == "store_full"
    facade.close()
