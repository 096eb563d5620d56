"""Who is in the trainer's group: asked before each sync, over real gloo in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from fakes.thread_engine import ThreadEngine

from live_eval.errors import TransportError
from live_eval.publisher.collective import CollectiveConfig, CollectivePublisher
from live_eval.publisher.engines import FacadeEngine
from live_eval.publisher.sglang_engine import SGLangEngine

Publishers = Callable[..., CollectivePublisher]


@pytest.fixture
def publishers(tmp_path: Path) -> Iterator[Publishers]:
    """Makes publishers whose receiver is not there."""
    made: list[CollectivePublisher] = []

    def make(*engines: ThreadEngine, group_timeout_s: float = 20.0) -> CollectivePublisher:
        config = CollectiveConfig(
            run_id="run", incarnation_id="life", probe_timeout_s=1.0, group_timeout_s=group_timeout_s
        )
        receiver = FacadeEngine(tmp_path / "nobody.sock")
        made.append(CollectivePublisher(config, receiver=receiver, engines=engines))
        return made[-1]

    yield make
    for publisher in made:
        publisher.close(2.0)


def publish(publisher: CollectivePublisher, version: int) -> None:
    publisher.begin(version)
    publisher.put_bucket([("a", torch.full((3,), float(version))), ("b", torch.tensor([version]))])
    publisher.put_bucket([("c", torch.full((2, 2), float(version)))])
    publisher.commit()


def assert_follows(engine: ThreadEngine, version: int) -> None:
    for weights in engine.weights:
        assert weights["a"].tolist() == [version] * 3
        assert weights["b"].tolist() == [version]
        assert weights["c"].tolist() == [[version] * 2] * 2


def test_ranks_follow_from_the_sizes_of_the_engines(publishers: Publishers) -> None:
    engines = [ThreadEngine("wide", num_ranks=3), ThreadEngine("one"), ThreadEngine("two", num_ranks=2)]
    publish(publishers(*engines), 1)
    assert [(e.joins[0].rank_offset, e.joins[0].world_size) for e in engines] == [(1, 7), (4, 7), (5, 7)]
    for engine in engines:
        assert_follows(engine, 1)


def test_a_group_that_stands_is_kept(publishers: Publishers) -> None:
    engine = ThreadEngine("e")
    publisher = publishers(engine)
    for version in (1, 2, 3):
        publish(publisher, version)
        assert_follows(engine, version)
    assert len(engine.joins) == 1
    assert engine.calls[-5:] == ["pause", "flush", "receive_bucket", "receive_bucket", "resume"]


def test_an_engine_that_was_started_again_joins_a_new_group(publishers: Publishers) -> None:
    engines = [ThreadEngine("a"), ThreadEngine("b")]
    publisher = publishers(*engines)
    publish(publisher, 1)
    engines[1].life += 1
    publish(publisher, 2)
    assert [join.group_name for join in engines[0].joins] == ["live-eval-pp_0.1", "live-eval-pp_0.2"]
    for engine in engines:
        assert_follows(engine, 2)


@pytest.mark.parametrize("fault", ["alive", "join", "pause", "flush"])
def test_an_engine_that_fails_before_the_broadcast_is_left_out_and_comes_back(
    publishers: Publishers, fault: str
) -> None:
    good, bad = ThreadEngine("good"), ThreadEngine("bad")
    publisher = publishers(good, bad, group_timeout_s=4.0)  # what a join that fails costs
    publish(publisher, 1)
    bad.faults = {fault}
    if fault == "join":
        bad.life += 1
    publish(publisher, 2)
    assert_follows(good, 2)
    assert_follows(bad, 1)
    bad.faults = set()
    publish(publisher, 3)
    assert_follows(good, 3)
    assert_follows(bad, 3)


def test_a_member_that_refuses_a_bucket_is_seen_before_the_groups_deadline(publishers: Publishers) -> None:
    good, bad = ThreadEngine("good"), ThreadEngine("bad")
    publisher = publishers(good, bad, group_timeout_s=10.0)
    publish(publisher, 1)
    bad.faults = {"receive_bucket"}
    publisher.begin(2)
    began = time.monotonic()
    with pytest.raises(TransportError, match="bad fails in receive_bucket"):
        publisher.put_bucket([("a", torch.zeros(4_000_000))])
    assert time.monotonic() - began < 9.0
    assert good.calls[-1] == "resume"
    bad.faults = set()
    publish(publisher, 3)
    assert_follows(good, 3)
    assert_follows(bad, 3)


def test_a_member_that_never_posts_its_receives_costs_the_groups_deadline(publishers: Publishers) -> None:
    slow = ThreadEngine("slow")
    publisher = publishers(slow, group_timeout_s=2.0)
    publish(publisher, 1)
    slow.faults = {"sleep"}
    publisher.begin(2)
    began = time.monotonic()
    with pytest.raises(TransportError, match=r"live-eval-pp_0\.1"):
        publisher.put_bucket([("a", torch.zeros(4_000_000))])
    assert time.monotonic() - began < 12.0


def test_nobody_there_raises_nothing_and_publishes_nothing(publishers: Publishers) -> None:
    publisher = publishers()
    publisher.begin(1)
    publisher.put_bucket([("a", torch.zeros(3))])
    report = publisher.commit()
    assert (report.published, report.reason) == (False, "receiver_restarted")
    assert report.held_s < 10.0


def test_when_the_last_member_goes_the_group_goes(publishers: Publishers) -> None:
    engine = ThreadEngine("e")
    publisher = publishers(engine)
    publish(publisher, 1)
    engine.faults = {"pause"}
    publish(publisher, 2)
    assert_follows(engine, 1)
    engine.faults = set()
    publish(publisher, 3)
    assert_follows(engine, 3)


def test_what_the_receiver_never_heard_of_has_an_outcome_at_the_end(publishers: Publishers) -> None:
    publisher = publishers(ThreadEngine("e"))
    publish(publisher, 1)
    publish(publisher, 2)
    assert publisher.outcomes() == []
    publisher.close(1.0)
    assert [(o.weight_version, o.reason) for o in publisher.outcomes()] == [
        (1, "receiver_restarted"),
        (2, "receiver_restarted"),
    ]


def test_a_server_that_is_not_there_is_a_transport_error() -> None:
    engine = SGLangEngine("http://127.0.0.1:9")
    with pytest.raises(TransportError, match="SGLang at"):
        engine.alive(2.0)
    with pytest.raises(TransportError, match="SGLang at"):
        engine.flush(0.2)
    engine.close()
