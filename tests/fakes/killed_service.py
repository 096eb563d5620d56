"""The service's process, which kills itself at a named write, as a kill -9 from outside would.

    python -m fakes.killed_service POINT COUNT CONFIG.json

A point is `PLACE.METHOD:MOMENT`. Moments: `before` the call, `after` it, and where there is one the
middle: `commit` (the transaction is whole but for its COMMIT), `half` (half of the bytes are written).
The process dies at the COUNT-th time that the point is passed. `POINTS` lists them all.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_eval import service
from live_eval.evaluation.sample_log import SampleLog
from live_eval.results import jsonl_sink
from live_eval.results.jsonl_sink import JsonlSink
from live_eval.results.ledger import Ledger
from live_eval.results.wandb_sink import WandbSink
from live_eval.store.store import VersionStore

if TYPE_CHECKING:
    from live_eval.results.rows import OutboxRow

CLASSES: dict[str, type] = {
    "ledger": Ledger,
    "samples": SampleLog,
    "jsonl": JsonlSink,
    "wandb": WandbSink,
    "store": VersionStore,
}
METHODS = {
    "ledger": ("create_jobs", "start", "requeue", "finish", "record_version", "put"),
    "ledger_relaxed": ("progress", "ack"),
    "samples": ("__init__", "append", "close"),
    "jsonl": ("open", "write"),
    "wandb": ("open", "write"),
    "store": ("pin", "upgrade", "unpin", "collect"),
}


def _points() -> Iterator[str]:
    for place, methods in METHODS.items():
        name = place.removesuffix("_relaxed")
        for method in methods:
            yield f"{name}.{method}:before"
            if place == "ledger":
                yield f"{name}.{method}:commit"
            if method in ("append", "write") and name in ("samples", "jsonl"):
                yield f"{name}.{method}:half"
            yield f"{name}.{method}:after"
    yield "jsonl.open:half"


POINTS = tuple(_points())


class Death:
    """Counts how often the point is passed, and kills this process at the chosen time."""

    def __init__(self, count: int) -> None:
        self._left = count

    def near(self) -> None:
        """The point is passed."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, count: int) -> None:
    """Put the death in its place."""
    where, _, moment = point.partition(":")
    place, _, method = where.partition(".")
    death, owner = Death(count), CLASSES[place]
    if moment == "commit":
        _arm_commit(method, death)
    elif moment == "half":
        _arm_half(place, method, death)
    else:
        _wrap(owner, method, **{moment: death.near})


def _wrap(
    owner: Any,
    method: str,
    *,
    before: Callable[[], None] | None = None,
    after: Callable[[], None] | None = None,
) -> None:
    original = getattr(owner, method)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before()
        result = original(*args, **kwargs)
        if after is not None:
            after()
        return result

    setattr(owner, method, wrapped)


def _arm_commit(method: str, death: Death) -> None:
    """Die when SQLite is asked to commit what this method wrote."""
    inside: list[str] = []
    _wrap(Ledger, method, before=lambda: inside.append(method), after=inside.clear)
    original = Ledger.open

    def opened(*args: Any, **kwargs: Any) -> Ledger:
        ledger = original(*args, **kwargs)
        ledger._db.set_trace_callback(
            lambda statement: death.near() if inside and statement == "COMMIT" else None
        )
        return ledger

    Ledger.open = opened  # type: ignore[method-assign]


def _arm_half(place: str, method: str, death: Death) -> None:
    """Die with half of the bytes written, or with a new file whole and not in its place."""
    if place == "samples":
        SampleLog._write = _in_halves(SampleLog._write, death)  # type: ignore[method-assign]
    elif method == "write":
        JsonlSink.write = _halved_lines(death)  # type: ignore[method-assign]
    else:
        replace = Path.replace

        def replaced(self: Path, target: Any) -> Path:
            if self.name.startswith(".results.jsonl"):
                death.near()
            return replace(self, target)

        Path.replace = replaced  # type: ignore[method-assign]


def _in_halves(write: Callable[[Any, bytes], None], death: Death) -> Callable[[Any, bytes], None]:
    def written(self: Any, data: bytes) -> None:
        write(self, data[: len(data) // 2])
        if data:
            death.near()
        write(self, data[len(data) // 2 :])

    return written


def _halved_lines(death: Death) -> Callable[[JsonlSink, Sequence[OutboxRow]], None]:
    def written(self: JsonlSink, rows: Sequence[OutboxRow]) -> None:
        text = "".join(jsonl_sink._lines(rows))
        for half in (text[: len(text) // 2], text[len(text) // 2 :]):
            with self._path.open("a", encoding="utf-8") as out:
                out.write(half)
            if text:
                death.near()

    return written


if __name__ == "__main__":
    arm(sys.argv[1], int(sys.argv[2]))
    sys.exit(service.main(sys.argv[3:]))
