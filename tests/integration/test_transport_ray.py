"""Transport ray with a real Ray: bad syncs, lost payloads, dead and frozen receivers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from operator import gt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from fakes.faulty_syncs import SCENARIOS, bytes_of, digests_of, send, whole
from fakes.local_ray import local_ray
from fakes.ray_site import WAIT_S, RayPlayer, Site, make_publisher, outcomes, publish
from fakes.sync import DOWN, EMBED, MODEL, NORM, UP, begin, bucket, commit, content, done

from live_eval.errors import TransportError
from live_eval.publisher.ray_link import RayLink
from live_eval.publisher.staging import staging_bytes
from live_eval.subscriber.ray_receiver import RayReceiverConfig, start_ray_receiver
from protocol.codec import encode
from protocol.messages import BucketHeader, ErrorReply, Message, SyncOutcome, TensorMeta
from protocol.payload import payload_layout

if TYPE_CHECKING:
    from live_eval.publisher.ray_ref import RayRefPublisher

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def ray_cluster() -> Iterator[None]:
    with local_ray():
        yield


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One receiver for all tests that leave it alive."""
    site = Site(tmp_path_factory.mktemp("site"), "shared")
    yield site
    site.close()


@pytest.fixture
def publishers() -> Iterator[Callable[..., RayRefPublisher]]:
    """Makes publishers and closes them."""
    made: list[RayRefPublisher] = []

    def make(link: RayLink, life: str, **settings: Any) -> RayRefPublisher:
        made.append(make_publisher(link, life, **settings))
        return made[-1]

    yield make
    for publisher in made:
        publisher.close(10.0)


@pytest.mark.parametrize("in_place", [True, False])
def test_syncs_become_versions_with_the_trainers_bytes(site: Site, publishers: Any, in_place: bool) -> None:
    publisher = publishers(RayLink(site.actor, in_place=in_place), f"plain-{in_place}")
    for version in (1, 2):
        assert publish(publisher, version).published
        (outcome,) = outcomes(publisher, 1)
        assert outcome.state == "sealed"
        assert outcome.policy_version is not None
        manifest = site.read(lambda store, number=outcome.policy_version: store.verify(number))
        assert (manifest.rollout_id, manifest.train_step, manifest.digest) == (
            version - 2,
            version * 10,
            outcome.digest,
        )
        for tensor in MODEL:
            assert site.content(outcome.policy_version, tensor) == content(tensor, version).tobytes()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_bad_sync_is_discarded_with_its_reason_and_the_next_is_sealed(site: Site, name: str) -> None:
    scenario, reason = SCENARIOS[name]
    player = RayPlayer(site.actor)
    pid = site.pid()
    scenario(player, begin(1, incarnation=name))
    assert [found for _, found in site.reasons(name)][:1] == [reason]
    assert site.sealed(name) == []
    assert whole(player, begin(3, incarnation=name)).state == "sealed"
    assert site.sealed(name) == [3]
    assert site.pid() == pid


@pytest.mark.parametrize("extra", [-1, 1, 64])
def test_a_payload_of_another_size_is_refused(site: Site, extra: int) -> None:
    import ray

    life = f"size{extra}"
    player = RayPlayer(site.actor)
    of = begin(1, incarnation=life)
    player.ask(of)
    header = bucket(of, 0, *MODEL)
    payload = np.zeros(payload_layout(header.tensors).num_bytes + extra, dtype=np.uint8)
    answer = player.hand_over(header, ray.put(payload))
    assert isinstance(answer, SyncOutcome)
    assert answer.reason == "wrong_size"
    assert site.reasons(life) == [(1, "wrong_size")]


def test_a_bucket_is_one_header_and_one_payload(site: Site) -> None:
    player = RayPlayer(site.actor)
    of = begin(1, incarnation="refs")
    player.ask(of)
    for refs in ((), ("one", "two")):
        answer = player.hand_over(bucket(of, 0, *MODEL), *refs)
        assert isinstance(answer, ErrorReply)
        assert answer.code == "malformed_message"
    garbled = player.call(site.actor.request.remote(b"\xc1"))
    assert isinstance(garbled, ErrorReply)
    assert player.ask(bucket(of, 0, *MODEL)) != garbled
    unknown = player.ask(commit(begin(9, incarnation="refs")))
    assert isinstance(unknown, ErrorReply)
    assert unknown.code == "transport"


def test_a_receiver_that_cannot_start_says_why(tmp_path: Path) -> None:
    config = RayReceiverConfig(store=tmp_path / "store", base=tmp_path / "nothing", max_bytes=1 << 20)
    with pytest.raises(TransportError, match=r"nothing"):
        start_ray_receiver(config, name="hopeless")


def test_two_sources_interleave_and_share_a_tensor(site: Site) -> None:
    player = RayPlayer(site.actor)
    of = begin(1, incarnation="pair", sources=("pp_0", "pp_1"))
    player.ask(of)
    send(player, of, 0, EMBED)
    player.ask(of)
    send(player, of, 0, DOWN, source="pp_1")
    send(player, of, 1, UP)
    send(player, of, 1, EMBED, NORM, source="pp_1")
    player.ask(done(of, 2, source="pp_1", digests=digests_of([EMBED, DOWN, NORM])))
    early = site.actor.request.remote(encode(commit(of)))
    player.ask(done(of, 2, digests=digests_of([EMBED, UP])))
    outcome = player.call(early)
    assert isinstance(outcome, SyncOutcome)
    assert outcome.state == "sealed"
    assert site.sealed("pair") == [1]


def test_two_sources_that_differ_in_a_tensor_make_no_version(site: Site) -> None:
    player = RayPlayer(site.actor)
    of = begin(1, incarnation="unlike", sources=("pp_0", "pp_1"))
    player.ask(of)
    send(player, of, 0, EMBED, UP)
    answer = player.bucket(
        bucket(of, 0, EMBED, DOWN, NORM, source="pp_1"), bytes_of([EMBED, DOWN, NORM], salt=5)
    )
    assert isinstance(answer, SyncOutcome)
    assert answer.reason == "duplicate_tensor"


def test_two_publishers_are_the_sources_of_one_version(site: Site, publishers: Any) -> None:
    both = {"sources": ("pp_0", "pp_1")}
    first = publishers(RayLink(site.actor), "duo", source="pp_0", **both)
    second = publishers(RayLink(site.actor), "duo", source="pp_1", **both)
    for version in (1, 2):
        publish(first, version, (EMBED, UP))
        publish(second, version, (DOWN, NORM, EMBED))
        found = outcomes(first, 1) + outcomes(second, 1)
        assert [outcome.state for outcome in found] == ["sealed", "sealed"]
    assert site.sealed("duo") == [1, 2]


def test_a_payload_whose_owner_died_costs_the_version(site: Site) -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Trainer:
        def put(self, payload: np.ndarray) -> list[Any]:
            # Large enough for the object store, where it dies with its owner.
            return [ray.put(np.resize(payload, 4 << 20))]

    trainer = Trainer.remote()
    player = RayPlayer(site.actor)
    header = bucket(begin(1, incarnation="owner"), 0, *MODEL)
    refs = ray.get(trainer.put.remote(player.pack(header, bytes_of(MODEL))), timeout=WAIT_S)
    ray.kill(trainer)
    reasons: list[str] = []
    # Until its owner's death is known everywhere an object can still be read.
    for version in range(1, 60):
        of = begin(version, incarnation="owner")
        player.ask(of)
        began = time.monotonic()
        answer = player.hand_over(bucket(of, 0, *MODEL), *refs)
        assert time.monotonic() - began < 20.0
        assert isinstance(answer, SyncOutcome)
        reasons.append(answer.reason)
        if answer.reason == "payload_lost":
            break
        time.sleep(0.2)
    assert set(reasons[:-1]) <= {"wrong_size"}
    assert reasons[-1] == "payload_lost"
    assert whole(player, begin(60, incarnation="owner")).state == "sealed"


def test_a_payload_that_never_comes_costs_the_deadline(site: Site) -> None:
    import ray

    @ray.remote(num_cpus=0)
    def never() -> None:
        time.sleep(300)

    player = RayPlayer(site.actor)
    of = begin(1, incarnation="never")
    player.ask(of)
    pending = never.remote()
    began = time.monotonic()
    answer = player.hand_over(bucket(of, 0, *MODEL), pending)
    assert isinstance(answer, SyncOutcome)
    assert answer.reason == "payload_lost"
    assert "not there within 2 s" in answer.detail
    assert time.monotonic() - began < 30.0
    ray.cancel(pending, force=True)


def test_a_publisher_that_falls_silent_loses_its_sync(site: Site) -> None:
    player = RayPlayer(site.actor)
    of = begin(1, incarnation="silent")
    player.ask(of)
    send(player, of, 0, EMBED)
    deadline = time.monotonic() + WAIT_S
    while not site.reasons("silent") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert site.reasons("silent") == [(1, "source_deadline")]


def test_a_restarted_trainer_continues_the_policy_versions(site: Site, publishers: Any) -> None:
    numbers: list[int] = []
    for life in ("attempt-1", "attempt-2"):
        publisher = publishers(RayLink(site.actor), life)
        for version in (1, 2):
            publish(publisher, version)
            number = outcomes(publisher, 1)[0].policy_version
            assert number is not None
            numbers.append(number)
    assert numbers == sorted(set(numbers))
    assert site.sealed("attempt-1") == [1, 2]
    assert site.sealed("attempt-2") == [1, 2]


class FaultyLink(RayLink):
    """Does something to the receiver when a sync's bucket `at` is about to be sent, once."""

    def __init__(self, actor: Any, at: int, fault: Callable[[], None], *, in_place: bool = True) -> None:
        super().__init__(actor, in_place=in_place)
        self._at: int | None = at
        self._fault = fault

    def start(self, message: Message, payload: Any = None) -> Any:
        if isinstance(message, BucketHeader) and message.index == self._at:
            self._at = None
            self._fault()
        return super().start(message, payload)


@pytest.mark.parametrize(("at", "in_place"), [(0, True), (2, False), (3, True)])
def test_a_receiver_killed_in_the_middle_costs_this_version_and_not_the_next(
    tmp_path: Path, publishers: Any, at: int, in_place: bool
) -> None:
    site = Site(tmp_path, f"killed-{at}")
    pid = site.pid()
    link = FaultyLink(site.actor, at, lambda: os.kill(pid, signal.SIGKILL), in_place=in_place)
    publisher = publishers(link, "life", deadline_s=WAIT_S, answer_timeout_s=WAIT_S)
    reports = [publish(publisher, version) for version in (1, 2)]
    assert all(report.published for report in reports)
    assert reports[0].held_s < 10.0
    assert [(o.weight_version, o.state, o.reason) for o in outcomes(publisher, 2)] == [
        (1, "discarded", "receiver_restarted"),
        (2, "sealed", ""),
    ]
    assert site.reasons("life") == [(1, "receiver_restarted")]
    assert site.sealed("life") == [2]
    assert site.pid() != pid
    site.close()


def test_a_frozen_receiver_holds_the_trainer_for_its_deadline_at_most(
    tmp_path: Path, publishers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, "frozen", deadline_s=60.0)
    pid = site.pid()
    link = FaultyLink(site.actor, 1, lambda: os.kill(pid, signal.SIGSTOP))
    publisher = publishers(link, "life", deadline_s=1.0, answer_timeout_s=4.0)
    try:
        reports = [publish(publisher, version) for version in (1, 2, 3)]
        assert reports[0].published
        assert [report.reason for report in reports[1:]] == ["publisher_deadline", "publisher_deadline"]
        assert 0.95 < reports[1].held_s < 3.5
        assert reports[2].held_s < 0.95
        deadline = time.monotonic() + WAIT_S
        while "weight version 1 is given up" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.kill(pid, signal.SIGCONT)
    found = outcomes(publisher, 3)
    assert {(outcome.weight_version, outcome.reason) for outcome in found} == {
        (1, "publisher_deadline"),
        (2, "publisher_deadline"),
        (3, "publisher_deadline"),
    }
    assert sorted(site.reasons("life")) == [(version, "publisher_deadline") for version in (1, 2, 3)]
    publish(publisher, 4)
    assert outcomes(publisher, 1)[0].state == "sealed"
    assert site.sealed("life") == [4]
    assert site.pid() == pid
    site.close()


def test_a_full_version_store_costs_versions_and_nothing_else(tmp_path: Path, publishers: Any) -> None:
    site = Site(tmp_path, "full", max_bytes=1000)
    publisher = publishers(RayLink(site.actor), "life")
    for version in (1, 2):
        assert publish(publisher, version).published
        assert outcomes(publisher, 1)[0].reason == "store_full"
    assert site.reasons("life") == [(1, "store_full"), (2, "store_full")]
    site.close()


def test_a_crowded_object_store_neither_raises_nor_holds(site: Site, publishers: Any) -> None:
    import ray

    crowd = [ray.get(ray.put(np.zeros(30 << 20, dtype=np.uint8))) for _ in range(6)]
    publisher = publishers(RayLink(site.actor, in_place=False), "crowd", deadline_s=5.0)
    report = publish(publisher, 1)
    assert report.held_s < 4.5
    assert outcomes(publisher, 1)[0].state in {"sealed", "discarded"}
    del crowd
    publish(publisher, 2)
    assert outcomes(publisher, 1)[0].state == "sealed"


class CountingLink(RayLink):
    """Counts what goes through the object store."""

    num_put = 0

    def put_in_store(self, payload: np.ndarray) -> Any:
        self.num_put += 1
        return super().put_in_store(payload)


@pytest.mark.parametrize("in_place", [True, False])
def test_large_payloads_are_read_in_place_or_pass_through_the_object_store_and_leave_it(
    tmp_path: Path, publishers: Any, in_place: bool
) -> None:
    import ray

    large = [TensorMeta(f"layers.{i}.weight", "float32", (1024, 1024)) for i in range(20)]
    site = Site(tmp_path, f"large-{in_place}", tensors=large, deadline_s=60.0, payload_timeout_s=30.0)
    link = CountingLink(site.actor, in_place=in_place)
    publisher = publishers(
        link, "life", slot_bytes=staging_bytes(large), bucket_bytes=16 << 20, deadline_s=5.0
    )

    def num_refs(_: object = None) -> int:
        return len(ray._private.worker.global_worker.core_worker.get_all_reference_counts())

    def refs() -> tuple[int, int]:
        return num_refs(), ray.get(site.actor.__ray_call__.remote(num_refs), timeout=WAIT_S)

    after: list[tuple[int, int]] = []
    for version in (1, 2, 3):
        assert publish(publisher, version, large).published
        outcome = outcomes(publisher, 1)[0]
        assert (outcome.state, outcome.num_bytes) == ("sealed", 20 * 4 << 20)
        after.append(refs())
    deadline = time.monotonic() + WAIT_S
    while any(map(gt, refs(), after[1])):  # Ray lets go of some a moment later
        assert time.monotonic() < deadline, (refs(), after)
        time.sleep(0.05)
    assert link.num_put == (0 if in_place else 3 * len(large))
    assert site.sealed("life") == [1, 2, 3]
    site.close()
