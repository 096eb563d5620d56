"""Transport nccl over real gloo: the receiver process and syncs that are wrong, by hand."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fakes.facade import FacadePlayer, FacadeProcess
from fakes.faulty_syncs import SCENARIOS, bytes_of, digests_of, send, whole
from fakes.sync import DOWN, EMBED, MODEL, NORM, UP, begin, bucket, commit, done

from live_eval.channel import BlockingClient
from live_eval.collective import Rendezvous, join_group
from live_eval.errors import PeerError
from protocol.messages import (
    ErrorReply,
    GroupStatus,
    GroupStatusRequest,
    JoinGroup,
    LeaveGroup,
    Ok,
    ReceiveBucket,
    SyncOutcome,
)


@pytest.fixture(scope="module")
def facade(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FacadeProcess]:
    """One receiver process for all tests that leave it alive."""
    facade = FacadeProcess(tmp_path_factory.mktemp("facade"))
    yield facade
    facade.close()


@pytest.fixture
def player(facade: FacadeProcess) -> Iterator[FacadePlayer]:
    player = FacadePlayer(facade)
    yield player
    player.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_bad_sync_is_discarded_with_its_reason_and_the_next_is_sealed(
    facade: FacadeProcess, player: FacadePlayer, name: str
) -> None:
    scenario, reason = SCENARIOS[name]
    pid = facade.pid
    scenario(player, begin(1, incarnation=name))
    assert [found for _, found in facade.reasons(name)][:1] == [reason]
    assert facade.sealed(name) == []
    assert whole(player, begin(3, incarnation=name)).state == "sealed"
    assert facade.sealed(name) == [3]
    assert facade.pid == pid


def test_a_buffer_that_is_larger_than_what_is_sent_is_seen_by_digest(
    facade: FacadeProcess, player: FacadePlayer
) -> None:
    of = begin(1, incarnation="larger")
    player.ask(of)
    data = bytes_of(MODEL)
    data[1] = data[1][: len(data[1]) // 2]
    player.bucket(bucket(of, 0, *MODEL), data)
    told = digests_of(MODEL)
    player.ask(done(of, 1, digests=told))
    assert facade.reasons("larger") == [(1, "digest_mismatch")]


def test_a_buffer_that_is_smaller_than_what_is_sent_ends_the_process_and_not_the_store(
    facade: FacadeProcess,
) -> None:
    player = FacadePlayer(facade)
    assert whole(player, begin(1, incarnation="smaller")).state == "sealed"
    of = begin(2, incarnation="smaller")
    player.ask(of)
    send(player, of, 0, EMBED, UP)
    # gloo aborts the receiver; whether the sender sees it at once or at its next broadcast is open.
    answer = player.bucket(bucket(of, 1, DOWN), [np.ones(4 * DOWN.num_bytes, dtype=np.uint8)])
    assert isinstance(answer, ErrorReply)
    player.close()
    assert facade.wait(30.0) != 0
    facade.start()
    assert facade.reasons("smaller") == [(2, "receiver_restarted")]
    assert facade.sealed("smaller") == [1]
    again = FacadePlayer(facade)
    assert whole(again, begin(3, incarnation="smaller")).state == "sealed"
    again.close()


def test_a_bucket_of_an_unknown_sync_is_received_all_the_same(
    facade: FacadeProcess, player: FacadePlayer
) -> None:
    answer = player.bucket(bucket(begin(9, incarnation="nobody"), 0, *MODEL), bytes_of(MODEL))
    assert isinstance(answer, ErrorReply)
    assert "not known here" in answer.message
    assert whole(player, begin(10, incarnation="nobody")).state == "sealed"


def test_a_bucket_in_a_group_that_it_is_not_in_is_refused_before_the_broadcast(facade: FacadeProcess) -> None:
    with BlockingClient(facade.config.socket) as client, pytest.raises(PeerError, match="slime-pp_7"):
        client.request(
            ReceiveBucket(header=bucket(begin(1, incarnation="x"), 0, *MODEL), group_name="slime-pp_7"),
            timeout_s=20.0,
        )


def test_a_closed_connection_loses_the_sync_that_was_begun_on_it(facade: FacadeProcess) -> None:
    player = FacadePlayer(facade)
    of = begin(1, incarnation="closed")
    player.ask(of)
    send(player, of, 0, EMBED)
    player.close()
    deadline = time.monotonic() + 30.0
    while not facade.reasons("closed") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert facade.reasons("closed") == [(1, "publisher_lost")]


def test_two_sources_in_groups_of_their_own_interleave(facade: FacadeProcess) -> None:
    first = FacadePlayer(facade, group_name="slime-pp_0")
    second = FacadePlayer(facade, group_name="slime-pp_1")
    of = begin(1, incarnation="pair", sources=("pp_0", "pp_1"))
    first.ask(of)
    second.ask(of)
    send(first, of, 0, EMBED)
    send(second, of, 0, DOWN, EMBED, source="pp_1")
    send(first, of, 1, UP)
    send(second, of, 1, NORM, source="pp_1")
    first.ask(done(of, 2, digests=digests_of([EMBED, UP])))
    with ThreadPoolExecutor(1) as threads:
        early = threads.submit(first.ask, commit(of))
        second.ask(done(of, 2, source="pp_1", digests=digests_of([DOWN, EMBED, NORM])))
        outcome = early.result()
    assert isinstance(outcome, SyncOutcome)
    assert outcome.state == "sealed"
    late = second.ask(commit(of))
    assert late == outcome
    of = begin(2, incarnation="pair", sources=("pp_0", "pp_1"))
    first.ask(of)
    send(first, of, 0, EMBED)
    answer = second.bucket(bucket(of, 0, EMBED, source="pp_1"), bytes_of([EMBED], salt=9))
    assert isinstance(answer, SyncOutcome)
    assert answer.reason == "duplicate_tensor"
    first.close()
    second.close()


def test_joins_in_opposite_order_at_two_receivers_do_not_wait_for_each_other(
    facade: FacadeProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = FacadeProcess(tmp_path_factory.mktemp("other"))
    meetings = {name: Rendezvous("127.0.0.1", timeout_s=20.0) for name in ("slime-pp_0", "slime-pp_1")}

    def invite(process: FacadeProcess, name: str, rank: int) -> object:
        with BlockingClient(process.config.socket) as client:
            request = JoinGroup(
                group_name=name,
                master_address="127.0.0.1",
                master_port=meetings[name].port,
                rank=rank,
                world_size=3,
                backend="gloo",
                timeout_s=20.0,
            )
            return client.request(request, timeout_s=25.0)

    with ThreadPoolExecutor(8) as threads:
        joins = [
            threads.submit(invite, facade, "slime-pp_0", 1),
            threads.submit(invite, other, "slime-pp_1", 2),
        ]
        time.sleep(0.3)
        joins += [
            threads.submit(invite, facade, "slime-pp_1", 1),
            threads.submit(invite, other, "slime-pp_0", 2),
        ]
        groups = [
            threads.submit(
                join_group,
                backend="gloo",
                master_address="127.0.0.1",
                master_port=meeting.port,
                rank=0,
                world_size=3,
                group_name=name,
                timeout_s=20.0,
                rendezvous=meeting,
            )
            for name, meeting in meetings.items()
        ]
        assert [join.result() for join in joins] == [Ok()] * 4
        for group in groups:
            group.result().leave()
    with BlockingClient(facade.config.socket) as client:
        status = client.request(GroupStatusRequest(), timeout_s=20.0)
        assert isinstance(status, GroupStatus)
        assert {"slime-pp_0", "slime-pp_1"} <= set(status.groups)
        for name in meetings:
            client.request(LeaveGroup(group_name=name), timeout_s=20.0)
    other.close()


def test_a_join_that_nobody_answers_ends_with_the_groups_name_and_the_process_lives(
    facade: FacadeProcess,
) -> None:
    meeting = Rendezvous("127.0.0.1", timeout_s=2.0)
    request = JoinGroup(
        group_name="slime-pp_4",
        master_address="127.0.0.1",
        master_port=meeting.port,
        rank=1,
        world_size=2,
        backend="gloo",
        timeout_s=2.0,
    )
    with BlockingClient(facade.config.socket) as client:
        began = time.monotonic()
        with pytest.raises(PeerError, match=r"group slime-pp_4: (rank 1 of 2|not all members)"):
            client.request(request, timeout_s=20.0)
        assert time.monotonic() - began < 10.0
        assert isinstance(client.request(GroupStatusRequest(), timeout_s=20.0), GroupStatus)


def test_a_group_that_broke_is_left_and_its_name_can_be_used_again(facade: FacadeProcess) -> None:
    player = FacadePlayer(facade, group_name="slime-pp_0")
    of = begin(1, incarnation="broke")
    player.ask(of)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(
            player.ask, ReceiveBucket(header=bucket(of, 0, *MODEL), group_name="slime-pp_0")
        )
        time.sleep(0.3)
        player._group.leave()
        failed = answer.result()
    assert isinstance(failed, ErrorReply)
    assert facade.reasons("broke") == [(1, "group_failed")]
    player.close()
    again = FacadePlayer(facade, group_name="slime-pp_0")
    assert whole(again, begin(2, incarnation="broke")).state == "sealed"
    again.close()


def test_a_stopped_receiver_ends_its_sync_and_its_group(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    process = FacadeProcess(tmp_path_factory.mktemp("stopped"))
    player = FacadePlayer(process)
    of = begin(1, incarnation="life")
    player.ask(of)
    send(player, of, 0, EMBED)
    began = time.monotonic()
    process.signal(signal.SIGTERM)
    assert time.monotonic() - began < 15.0
    assert process.wait(1.0) == 0
    assert process.reasons("life") == [(1, "receiver_restarted")]
    player.close()
    process.start()
    assert process.reasons("life") == [(1, "receiver_restarted")]
    process.close()
