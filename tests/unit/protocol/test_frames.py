"""Frames: how a stream is cut, and what a bad length, an early end or a slow peer does."""

from __future__ import annotations

import itertools
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import LimitExceeded, MalformedMessage
from protocol.frames import FrameReader, frame, read_frame, write_frame


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def test_a_frame_is_a_big_endian_length_and_the_payload() -> None:
    assert frame(b"") == b"\x00\x00\x00\x00"
    assert frame(b"abc") == b"\x00\x00\x00\x03abc"
    assert frame(b"x" * 258)[:4] == b"\x00\x00\x01\x02"


def test_a_payload_above_the_limit_is_not_framed() -> None:
    assert len(frame(b"x" * 10, max_bytes=10)) == 14
    with pytest.raises(LimitExceeded, match="11 bytes"):
        frame(b"x" * 11, max_bytes=10)


@given(st.lists(st.binary(max_size=30), max_size=8), st.lists(st.integers(0, 300), max_size=12))
def test_payloads_do_not_depend_on_how_the_stream_is_cut(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(frame(payload) for payload in payloads)
    reader = FrameReader()
    found: list[bytes] = []
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    for start, end in itertools.pairwise(edges):
        found += reader.feed(stream[start:end])
    assert found == payloads
    assert reader.num_pending == 0


def test_what_is_pending_is_told() -> None:
    reader = FrameReader()
    assert reader.feed(frame(b"whole") + b"\x00\x00") == [b"whole"]
    assert reader.num_pending == 2
    assert reader.feed(b"\x00\x02a") == []
    assert reader.num_pending == 5
    assert reader.feed(b"b") == [b"ab"]
    assert reader.num_pending == 0


def test_a_length_above_the_limit_is_refused_after_the_payloads_before_it() -> None:
    reader = FrameReader(max_bytes=10)
    assert not reader.broken
    assert reader.feed(frame(b"a") + frame(b"b") + b"\x00\x00\x00\x0b" + frame(b"c")) == [b"a", b"b"]
    assert reader.broken
    for data in (b"", frame(b"d")):
        with pytest.raises(LimitExceeded, match="11 bytes"):
            reader.feed(data)
    assert reader.num_pending == 0


def test_a_bad_length_is_seen_before_its_payload_comes() -> None:
    with pytest.raises(LimitExceeded):
        FrameReader().feed(b"\xff\xff\xff\xff")


def test_a_large_announcement_takes_no_memory_in_advance() -> None:
    tracemalloc.start()
    try:
        readers = [FrameReader() for _ in range(100)]
        for reader in readers:
            assert reader.feed((60 << 20).to_bytes(4, "big") + b"few") == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_sockets_carry_frames_both_ways(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    for payload in (b"", b"x", b"y" * 70_000):
        writer = threading.Thread(target=write_frame, args=(left, payload))
        writer.start()
        assert read_frame(right) == payload
        writer.join()


def test_an_end_between_frames_is_no_error(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    write_frame(left, b"last")
    left.close()
    assert read_frame(right) == b"last"
    assert read_frame(right) is None


@pytest.mark.parametrize("num_bytes", [1, 3, 4, 5, 7])
def test_an_end_inside_a_frame_is_malformed(
    pair: tuple[socket.socket, socket.socket], num_bytes: int
) -> None:
    left, right = pair
    left.sendall(frame(b"four")[:num_bytes])
    left.close()
    with pytest.raises(MalformedMessage, match="inside a frame"):
        read_frame(right)


def test_an_empty_frame_is_told_from_an_end(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    left.sendall(frame(b""))
    left.close()
    assert read_frame(right) == b""
    assert read_frame(right) is None


def test_a_length_above_the_limit_is_refused_on_a_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    left.sendall(b"\x00\x00\x00\x0b")
    with pytest.raises(LimitExceeded):
        read_frame(right, max_bytes=10)


def test_the_deadline_bounds_a_read_however_the_bytes_drip(pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    stop = threading.Event()

    def drip() -> None:
        for byte in frame(b"x" * 100):
            if stop.wait(0.05):
                return
            left.send(bytes([byte]))

    thread = threading.Thread(target=drip)
    thread.start()
    before = time.monotonic()
    try:
        with pytest.raises(TimeoutError):
            read_frame(right, deadline=before + 0.2)
        assert 0.15 < time.monotonic() - before < 4.0
    finally:
        stop.set()
        thread.join()


def test_the_deadline_bounds_a_write_to_a_peer_that_does_not_read(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    left, _ = pair
    before = time.monotonic()
    with pytest.raises(TimeoutError):
        write_frame(left, b"x" * (8 << 20), deadline=before + 0.2)
    assert time.monotonic() - before < 20.0


def test_a_deadline_that_has_passed_reads_and_writes_nothing(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    left, right = pair
    write_frame(left, b"there")
    with pytest.raises(TimeoutError):
        read_frame(right, deadline=time.monotonic() - 1)
    with pytest.raises(TimeoutError):
        write_frame(left, b"more", deadline=time.monotonic() - 1)
    assert read_frame(right) == b"there"
