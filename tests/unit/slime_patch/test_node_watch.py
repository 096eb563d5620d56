"""A node that goes is noticed and said once; everything starts again where there is room, whatever fails."""

from __future__ import annotations

import threading
import time

from live_eval.errors import ConfigError
from slime_patch.node_watch import NodeWatch


class Cluster:
    """Nodes, and parts that run on one of them."""

    def __init__(self) -> None:
        self.nodes = ["old", "training"]
        self.node_id = "old"
        self.room: str | None = None
        self.problem = ""
        self.events: list[str] = []
        self.said: list[str] = []
        self.watch = NodeWatch(self, lambda: self.nodes, say=self.said.append, look_s=0.01)

    def lose(self) -> None:
        self.events.append(f"lost {self.node_id}")

    def start_again(self) -> bool:
        if self.room is None:
            return False
        if self.problem:
            raise ConfigError(self.problem)
        self.node_id = self.room
        self.events.append(f"started on {self.node_id}")
        return True

    def look(self, times: int = 3) -> None:
        for _ in range(times):
            self.watch.look()


def test_a_node_that_stays_is_left_alone() -> None:
    cluster = Cluster()
    cluster.look()
    assert (cluster.events, cluster.said) == ([], [])


def test_a_loss_and_a_return_are_said_once_each() -> None:
    cluster = Cluster()
    cluster.nodes = ["training"]
    cluster.look()
    assert cluster.events == ["lost old"]
    assert len(cluster.said) == 1
    assert "old is gone. Training goes on" in cluster.said[0]
    cluster.nodes, cluster.room = ["training", "new"], "new"
    cluster.look()
    assert cluster.events == ["lost old", "started on new"]
    assert cluster.said[1:] == ["live eval goes on, on node new"]


def test_the_next_node_may_go_too() -> None:
    cluster = Cluster()
    for old, new in (("old", "new"), ("new", "newer")):
        cluster.nodes, cluster.room = ["training"], None
        cluster.look()
        assert cluster.events[-1] == f"lost {old}"
        cluster.nodes, cluster.room = ["training", new], new
        cluster.look()
        assert cluster.events[-1] == f"started on {new}"
    assert len(cluster.said) == 4


def test_a_start_that_fails_is_tried_on_and_said_once() -> None:
    cluster = Cluster()
    cluster.nodes, cluster.room, cluster.problem = ["new"], "new", "no model there"
    cluster.look()
    assert [line for line in cluster.said if "no model there" in line] == [cluster.said[1]]
    cluster.problem = ""
    cluster.look()
    assert cluster.events == ["lost old", "started on new"]


def test_an_error_that_nobody_foresaw_ends_neither_the_watch_nor_the_training() -> None:
    cluster = Cluster()
    failing = threading.Event()
    failing.set()

    def live_nodes() -> list[str]:
        if failing.is_set():
            raise RuntimeError("the head node does not answer")
        return ["training"]

    watch = NodeWatch(cluster, live_nodes, say=cluster.said.append, look_s=0.01)
    watch.start()
    time.sleep(0.05)
    failing.clear()
    deadline = time.monotonic() + 30.0
    while not cluster.events:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    watch.stop()
    assert cluster.events == ["lost old"]


def test_a_driver_that_has_left_the_cluster_is_watched_no_more() -> None:
    cluster = Cluster()
    asked: list[int] = []

    def live_nodes() -> None:
        asked.append(1)

    watch = NodeWatch(cluster, live_nodes, say=cluster.said.append, look_s=0.01)
    watch.start()
    deadline = time.monotonic() + 30.0
    while not asked:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    assert (len(asked), cluster.events, cluster.said) == (1, [], [])
