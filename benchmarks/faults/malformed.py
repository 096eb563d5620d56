"""Damaged messages against one receiver process: it must answer, live on, and not grow.

    python -m benchmarks.faults.malformed --messages 100000 --seed S --json FILE

Golden messages are changed in their fields (and pass framing) or in their bytes (and may not).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import msgspec

from benchmarks.faults import model
from benchmarks.faults.crew import STORE
from benchmarks.faults.processes import alive
from benchmarks.faults.sites import NcclSite
from benchmarks.faults.workers import PRELOAD, Desk
from live_eval.channel import BlockingClient
from protocol.codec import decode, encode
from protocol.errors import ProtocolError
from protocol.messages import ONE_WAY, GroupStatusRequest, JoinGroup

GOLDENS = Path(__file__).parents[2] / "tests" / "golden" / "v1"
ANSWER_S = 20.0
JOIN_S = 0.1
WARM_SHARE = 0.3
"""Of the messages; what the process has after these must be enough for the rest."""
GROWTH_BYTES = 24 << 20
NUM_LOOKS = 40
ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63 - 1, -(2**63), 1e300, -0.5, "", "x", "../..", "é" * 40, "a" * 5000, [],
    [[]], {}, {"a": {"b": {"c": {}}}}, b"raw", [["model.norm.weight", "float32", [2**40, 2**40]]],
    [["model.norm.weight", "bfloat16", [-1]]],
)  # fmt: skip


@dataclass(kw_only=True)
class Findings:
    """What was seen."""

    seed: int
    sent: int = 0
    framed: int = 0
    """Whole frames: the codec had to decide about them."""
    answers: Counter[str] = field(default_factory=Counter)
    """Tag of the answer, with the code of an error; `closed` where the connection was."""
    rss_bytes: list[int] = field(default_factory=list)
    num_files: list[int] = field(default_factory=list)
    num_threads: list[int] = field(default_factory=list)
    crashes: int = 0
    troubles: list[str] = field(default_factory=list)

    @property
    def growth_bytes(self) -> int:
        """The most that the process had more than after the warm-up."""
        return max(self.rss_bytes, default=0) - min(self.rss_bytes[:1], default=0)

    def figures(self) -> list[dict[str, Any]]:
        """As the benchmarks write them."""
        rows: list[tuple[str, float, float | None, str]] = [
            ("messages", self.sent, None, ""),
            ("share that passes framing", round(self.framed / max(self.sent, 1), 3), 0.5, ""),
            ("kinds of answers", len(self.answers), None, ""),
            ("crashes", self.crashes, 0, ""),
            ("growth after the warm-up", self.growth_bytes, GROWTH_BYTES, "B"),
            ("troubles", len(self.troubles), 0, ""),
        ]
        peer = f"seed {self.seed}"
        return [
            {"figure": f"malformed: {what}", "value": value, "goal": goal, "peer": peer, "unit": unit}
            for what, value, goal, unit in rows
        ]


class Damage:
    """Changed golden messages, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._goldens = [path.read_bytes() for path in sorted(GOLDENS.glob("*.bin"))]

    def next(self) -> tuple[bytes, bool]:
        """Bytes to send, and whether they are one whole frame."""
        rng = self._random
        golden = rng.choice(self._goldens)
        if rng.random() < 0.8:
            payload = self._fields(golden) if rng.random() < 0.7 else self._bytes(golden)
            payload = _impatient(payload)
            return struct.pack(">I", len(payload)) + payload, True
        frame = bytearray(struct.pack(">I", len(golden)) + golden)
        match rng.randrange(3):
            case 0:
                frame[:4] = rng.randbytes(4)
            case 1:
                del frame[rng.randrange(1, len(frame)) :]
            case _:
                frame = bytearray(rng.randbytes(rng.randrange(1, 64)))
        return bytes(frame), False

    def _fields(self, golden: bytes) -> bytes:
        rng = self._random
        message: dict[Any, Any] = msgpack.unpackb(golden)
        if rng.random() < 0.6:  # of the right types: the codec takes most of these
            for key in rng.sample(list(message), min(len(message), rng.randrange(1, 4))):
                message[key] = message[key] if key in ("t", "v") else self._like(message[key])
        else:
            for _ in range(rng.randrange(1, 4)):
                self._spoil(message, rng.choice([*message, "t", "v", "extra"]))
        return msgpack.packb(message) or b""

    def _spoil(self, message: dict[Any, Any], key: Any) -> None:
        match self._random.randrange(4):
            case 0:
                message.pop(key, None)
            case 1:
                message[key] = self._from_another(key)
            case _:
                message[key] = self._random.choice(ODD_VALUES)

    def _like(self, value: Any) -> Any:
        """Another value of the same kind."""
        rng = self._random
        match value:
            case bool():
                return not value
            case int():
                return rng.choice([0, 1, -1, value + 1, 2**31, 2**62, rng.randrange(100)])
            case float():
                return rng.choice([0.0, -1.0, 0.05, 1e18, rng.random()])
            case str():
                return rng.choice(["", value[:-1], value + "x", "life-1/1", "pp_0", "\x00", "é" * 9])
            case list():
                return rng.choice(
                    [[], value[:-1], value + value, value[::-1], [self._like(v) for v in value]]
                )
            case dict():
                return {key: self._like(inner) for key, inner in value.items() if rng.random() < 0.9}
        return value

    def _from_another(self, key: str) -> Any:
        other = msgpack.unpackb(self._random.choice(self._goldens))
        return other.get(key, self._random.choice(list(other.values())))

    def _bytes(self, golden: bytes) -> bytes:
        rng, data = self._random, bytearray(golden)
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(4):
                case 0:
                    data[at : at + 1] = rng.randbytes(1)
                case 1:
                    data[at:at] = rng.randbytes(rng.randrange(1, 5))
                case 2:
                    del data[at : at + rng.randrange(1, 9)]
                case _:
                    data[at:at] = data[at : at + 100] * rng.randrange(1, 20)
        return bytes(data)


def _impatient(payload: bytes) -> bytes:
    """A join that the codec takes, with little patience: a wait that may be asked for is no fault."""
    try:
        message = decode(payload)
    except ProtocolError:
        return payload
    if not isinstance(message, JoinGroup) or message.timeout_s <= JOIN_S:
        return payload
    return encode(msgspec.structs.replace(message, timeout_s=JOIN_S))


class Sender:
    """One connection after another to the receiver."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sock: socket.socket | None = None

    def send(self, data: bytes, *, whole: bool) -> str:
        """What came back. Bytes that are no whole frame are followed by the end of the connection."""
        sock = self._sock = self._sock or self._connect()
        try:
            sock.sendall(data)
            if not whole:
                sock.shutdown(socket.SHUT_WR)
            answer = self._answer(sock)
        except (BrokenPipeError, ConnectionResetError):
            answer = "closed"
        if answer == "closed" or not whole:
            sock.close()
            self._sock = None
        return answer

    def _connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(ANSWER_S)
        sock.connect(str(self._path))
        return sock

    def _answer(self, sock: socket.socket) -> str:
        head = _read(sock, 4)
        if len(head) < 4:
            return "closed"
        message = msgpack.unpackb(_read(sock, struct.unpack(">I", head)[0]))
        return f"{message['t']} {message.get('code', '')}".strip()


def _read(sock: socket.socket, num: int) -> bytes:
    data = b""
    while len(data) < num and (piece := sock.recv(num - len(data))):
        data += piece
    return data


def run(num_messages: int, seed: int) -> Findings:
    """Send so many to a receiver process of its own."""
    root = Path(tempfile.mkdtemp(prefix="malformed-", dir="/tmp"))
    desk, found = Desk(root=root), Findings(seed=seed)
    desk.store.parent.mkdir()
    model.write_base(desk.base)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    site = NcclSite(desk, context, root / "s", STORE)
    try:
        site.ensure()
        pid = int(desk.pid_file("receiver").read_text())
        _bombard(found, site.socket, pid, num_messages)
        if not alive(pid):
            found.crashes = 1
            found.troubles.append(f"the receiver has died:\n{desk.log('receiver').read_text()[-2000:]}")
        if "internal error" in desk.log("receiver").read_text():
            found.troubles.append("the receiver's log tells of an internal error")
    finally:
        site.close()
        shutil.rmtree(root, ignore_errors=True)
    return found


def _bombard(found: Findings, path: Path, pid: int, num_messages: int) -> None:
    damage, sender = Damage(found.seed), Sender(path)
    warm = int(WARM_SHARE * num_messages)
    every = max((num_messages - warm) // NUM_LOOKS, 1)
    for number in range(num_messages):
        data, whole = damage.next()
        if whole and _is_one_way(data):
            data, whole = data[:-1], False
        try:
            answer = sender.send(data, whole=whole)
        except OSError as error:
            found.troubles.append(f"message {number}: no answer: {error}: {data!r:.400}")
            break
        found.sent += 1
        found.framed += whole
        found.answers[answer] += 1
        if "internal" in answer:
            found.troubles.append(f"message {number}: {answer}: {data!r:.300}")
        if number >= warm and (number - warm) % every == 0:
            _measure(found, pid)
    if not alive(pid):
        return
    with BlockingClient(path) as client:
        client.request(GroupStatusRequest(), timeout_s=ANSWER_S)
    time.sleep(0.5)  # joins that were asked for have ended
    _measure(found, pid)
    if found.growth_bytes > GROWTH_BYTES:
        found.troubles.append(f"it grows: {[size >> 20 for size in found.rss_bytes]} MiB")
    if found.num_files[-1] > found.num_files[0] + 8:
        found.troubles.append(f"files stay open: {found.num_files}")
    if found.framed < found.sent / 2:
        found.troubles.append("fewer than half pass framing")


def _is_one_way(frame: bytes) -> bool:
    """Whether nothing is answered to it; what the codec refuses is answered."""
    try:
        return isinstance(decode(frame[4:]), ONE_WAY)
    except ProtocolError:
        return False


def _measure(found: Findings, pid: int) -> None:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    found.rss_bytes.append(int(status["VmRSS"].split()[0]) << 10)
    found.num_threads.append(int(status["Threads"]))
    found.num_files.append(len(list(Path(f"/proc/{pid}/fd").iterdir())))


def main(arguments: list[str]) -> int:
    """Run, show, write; 1 if something was that must not be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults.malformed", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    found = run(options.messages, options.seed)
    print(
        f"{found.sent} messages to one process in {time.monotonic() - began:.0f} s: {found.framed} "
        f"({found.framed / max(found.sent, 1):.1%}) pass framing, {found.crashes} crashes, "
        f"{found.growth_bytes / (1 << 20):.1f} MiB more at most than after the first {WARM_SHARE:.0%}"
    )
    for answer, number in found.answers.most_common():
        print(f"  {answer:40} {number}")
    print(
        f"memory {[size >> 20 for size in found.rss_bytes[::8]]} MiB, files {found.num_files[::8]}, ", end=""
    )
    print(f"threads {found.num_threads[::8]}")
    for trouble in found.troubles[:20]:
        print("TROUBLE", trouble)
    if options.json:
        options.json.write_text(json.dumps(found.figures(), indent=1) + "\n")
    return 1 if found.troubles else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
