"""Groups over real gloo between real processes: who may join, and how long anybody waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from live_eval.collective import Group, Rendezvous, join_group
from live_eval.errors import ConfigError, TransportError
from live_eval.subscriber import groups
from live_eval.subscriber.groups import GroupTable
from protocol.messages import JoinGroup

FAKES = Path(__file__).parents[1] / "fakes"
REPO = Path(__file__).parents[2]
BIG = 8_000_000
"""Elements of a tensor that no socket buffer swallows."""


@contextmanager
def process(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A script of tests/fakes; killed at the end whatever it does."""
    argv = [sys.executable, str(FAKES / script), *map(str, arguments)]
    child = subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(REPO)}
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def master(name: str, world_size: int, rendezvous: Rendezvous, *, timeout_s: float = 60.0) -> Group:
    return join_group(
        backend="gloo",
        master_address=rendezvous.address,
        master_port=rendezvous.port,
        rank=0,
        world_size=world_size,
        group_name=name,
        timeout_s=timeout_s,
        rendezvous=rendezvous,
    )


def test_a_member_that_joins_as_sglang_does_receives_every_dtype_it_knows() -> None:
    rendezvous = Rendezvous("127.0.0.1", timeout_s=60.0)
    wanted = ["float32", 3, "bfloat16", 5, "int64", 1, "float32", 0, "uint8", 2]
    with process("torch_peer.py", rendezvous.port, 1, 2, "weights", *wanted) as peer:
        group = master("weights", 2, rendezvous)
        sent = [
            torch.tensor([1.5, -2.0, 3.0]),
            torch.arange(5, dtype=torch.bfloat16),
            torch.tensor(7),
            torch.empty(0),
            torch.tensor([8, 9], dtype=torch.uint8),
        ]
        group.broadcast(sent, timeout_s=30.0)
        assert json.loads(line(peer)) == [[1.5, -2.0, 3.0], [0, 1, 2, 3, 4], [7], [], [8, 9]]
        group.leave()


def test_members_of_one_group_receive_the_same_bytes() -> None:
    rendezvous = Rendezvous("127.0.0.1", timeout_s=60.0)
    with (
        process("group_member.py", rendezvous.port, 1, 3, "g", 60, "receive", 2) as one,
        process("group_member.py", rendezvous.port, 2, 3, "g", 60, "receive", 2) as two,
    ):
        group = master("g", 3, rendezvous)
        group.broadcast([torch.tensor([4.0, 5.0])], timeout_s=30.0)
        for member in (one, two):
            assert line(member) == "joined"
            assert json.loads(line(member)) == [[4.0, 5.0]]


def test_a_join_that_nobody_answers_ends_with_the_groups_name() -> None:
    began = time.monotonic()
    with pytest.raises(TransportError, match="group slime-pp_3: rank 0 of 2"):
        master("slime-pp_3", 2, Rendezvous("127.0.0.1", timeout_s=2.0), timeout_s=2.0)
    assert time.monotonic() - began < 10.0


def test_a_join_at_an_address_where_nobody_listens_ends() -> None:
    with process("group_member.py", 9, 1, 2, "slime-pp_0", 2, "receive", 1) as member:
        answer = json.loads(line(member))
    assert "group slime-pp_0: rank 1 of 2" in answer["error"]
    assert answer["after_s"] < 20.0


def test_a_member_that_dies_is_seen_at_once() -> None:
    rendezvous = Rendezvous("127.0.0.1", timeout_s=60.0)
    with process("group_member.py", rendezvous.port, 1, 2, "g", 60, "sleep") as member:
        group = master("g", 2, rendezvous)
        assert line(member) == "joined"
        member.kill()
        began = time.monotonic()
        with pytest.raises(TransportError, match="group g, rank 0"):
            group.broadcast([torch.zeros(BIG)], timeout_s=30.0)
        assert time.monotonic() - began < 20.0
        group.leave()


def test_a_frozen_member_costs_the_deadline_and_leaving_costs_nothing() -> None:
    rendezvous = Rendezvous("127.0.0.1", timeout_s=8.0)
    with process("group_member.py", rendezvous.port, 1, 2, "g", 60, "sleep") as member:
        group = master("g", 2, rendezvous, timeout_s=8.0)
        assert line(member) == "joined"
        os.kill(member.pid, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(TransportError, match="group g, rank 0"):
            group.broadcast([torch.zeros(BIG)], timeout_s=1.0)
        group.leave()
        assert time.monotonic() - began < 7.0
        with pytest.raises(TransportError, match="left already"):
            group.broadcast([torch.zeros(1)], timeout_s=1.0)


def test_members_are_freed_when_the_source_leaves_and_the_name_can_be_used_again() -> None:
    for _ in range(2):
        rendezvous = Rendezvous("127.0.0.1", timeout_s=60.0)
        with process("group_member.py", rendezvous.port, 1, 2, "slime-pp_0", 60, "receive", BIG) as member:
            group = master("slime-pp_0", 2, rendezvous)
            assert line(member) == "joined"
            group.leave()
            answer = json.loads(line(member))
        assert "group slime-pp_0, rank 1" in answer["error"]
        assert answer["after_s"] < 20.0


def test_an_unknown_backend_and_a_rank_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="mpi"):
        join_group(
            backend="mpi",
            master_address="127.0.0.1",
            master_port=1,
            rank=1,
            world_size=2,
            group_name="g",
            timeout_s=1.0,
        )
    with pytest.raises(ConfigError, match="rank 2 of 2"):
        join_group(
            backend="gloo",
            master_address="127.0.0.1",
            master_port=1,
            rank=2,
            world_size=2,
            group_name="g",
            timeout_s=1.0,
        )


def join_request(port: int, name: str = "g", *, timeout_s: float = 60.0) -> JoinGroup:
    return JoinGroup(
        group_name=name,
        master_address="127.0.0.1",
        master_port=port,
        rank=1,
        world_size=2,
        backend="gloo",
        timeout_s=timeout_s,
    )


def wait_until_joining(table: GroupTable, number: int) -> None:
    deadline = time.monotonic() + 30.0
    while len(table._joins) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_join_ends_when_somebody_leaves_that_name_and_the_name_can_be_joined() -> None:
    table, rendezvous = GroupTable(), Rendezvous("127.0.0.1", timeout_s=60.0)
    with ThreadPoolExecutor(1) as threads:
        joining = threads.submit(table.join, join_request(rendezvous.port))
        wait_until_joining(table, 1)
        began = time.monotonic()
        table.leave("g")
        with pytest.raises(TransportError, match="was left"):
            joining.result(timeout=10.0)
        assert time.monotonic() - began < 10.0
        second = Rendezvous("127.0.0.1", timeout_s=60.0)
        joining = threads.submit(table.join, join_request(second.port))
        group = master("g", 2, second)
        joining.result(timeout=10.0)
        assert table.names == ("g",)
        table.leave("g")
        group.leave()


def test_a_join_has_an_end_and_is_not_in_the_table_then() -> None:
    table, rendezvous = GroupTable(), Rendezvous("127.0.0.1", timeout_s=60.0)
    began = time.monotonic()
    with pytest.raises(TransportError):
        table.join(join_request(rendezvous.port, timeout_s=0.5))
    assert time.monotonic() - began < 20.0
    assert table.names == ()


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, 1e9])
def test_a_join_without_a_sensible_end_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigError):
        GroupTable().join(join_request(1, timeout_s=timeout_s))


def test_joins_that_never_end_by_themselves_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MAX_JOINS", 3)
    table, rendezvous = GroupTable(), Rendezvous("127.0.0.1", timeout_s=60.0)
    with ThreadPoolExecutor(3) as threads:
        joins = [
            threads.submit(table.join, join_request(rendezvous.port, f"g{n}", timeout_s=20.0))
            for n in range(3)
        ]
        wait_until_joining(table, 3)
        with pytest.raises(TransportError, match="under way already"):
            table.join(join_request(rendezvous.port, "another"))
        table.leave_all()
        for joining in joins:
            with pytest.raises(TransportError):
                joining.result(timeout=10.0)
