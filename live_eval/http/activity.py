"""What the engines did when, as spans: loads, evals, and times in which an engine was not there.

    load began (ready engines) --> load span --> pinned --> eval span --> ready
    starting, quarantined, dead --> down span --> ready

Told by the service as it happens, kept in memory and in a file of JSON lines, so that the picture
goes on where a service that was started again left off. Knows nothing of jobs or syncs.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

logger = logging.getLogger(__name__)

KEPT = 10_000
"""Spans in memory."""
_UP = ("ready", "pinned")


@dataclass(kw_only=True, slots=True)
class Span:
    """One stretch of time on one engine; times in seconds since the epoch."""

    engine: str
    kind: str
    """load, eval or down."""
    target: str | None
    begin: float
    end: float | None = None
    outcome: str = ""
    detail: str = ""


@dataclass(kw_only=True, slots=True)
class EngineNow:
    """What is known of an engine."""

    state: str
    since: float
    detail: str = ""
    target: str | None = None
    num_restarts: int = 0


class Activity:
    """All spans of a run; belongs to one thread."""

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """`path`: the file that spans are added to, and read back from."""
        self._clock = clock
        self.engines: dict[str, EngineNow] = {}
        self._open: dict[str, Span] = {}
        self._closed: deque[Span] = deque(maxlen=KEPT)
        self._file: TextIO | None = None
        if path is not None:
            self._closed.extend(_read(path))
            self._file = path.open("a", encoding="utf-8")

    def close(self) -> None:
        """End what is open and close the file."""
        for span in list(self._open.values()):
            self._end(span.engine, "cut")
        if self._file is not None:
            self._file.close()
            self._file = None

    def load_began(self, name: str, label: str) -> None:
        """The engine is being loaded with what carries this label; its next state says how that went."""
        self._end(name)
        self._begin(name, "load", target_of(label))

    def engine_changed(self, name: str, state: str, detail: str) -> None:
        """An engine has a new state; of a pinned one `detail` is the label that it carries."""
        detail = detail[:1000].encode("utf-8", "replace").decode("utf-8")
        before = self.engines.get(name)
        target = target_of(detail) if state == "pinned" else None
        restarts = before.num_restarts if before else 0
        if state == "starting" and before is not None and before.state != state:
            restarts += 1
        self.engines[name] = EngineNow(
            state=state, since=self._clock(), detail=detail, target=target, num_restarts=restarts
        )
        self._end(name, "ok" if state == "pinned" else "failed" if state not in _UP else "")
        if state == "pinned":
            self._begin(name, "eval", target)
        elif state not in _UP:
            self._begin(name, "down", None, state if not detail else f"{state}: {detail}")

    def spans(self, since: float, until: float) -> list[Span]:
        """What overlaps the window, in the order of its begin."""
        found = [*self._closed, *self._open.values()]
        return sorted(
            (span for span in found if span.begin <= until and (span.end is None or span.end >= since)),
            key=lambda span: span.begin,
        )

    def _begin(self, name: str, kind: str, target: str | None, detail: str = "") -> None:
        self._open[name] = Span(engine=name, kind=kind, target=target, begin=self._clock(), detail=detail)

    def _end(self, name: str, outcome: str = "") -> None:
        span = self._open.pop(name, None)
        if span is None:
            return
        span.end = self._clock()
        if span.kind == "load":
            span.outcome = outcome or "cut"
        elif span.kind == "eval" and outcome in ("cut", "failed"):
            span.outcome = outcome
        self._closed.append(span)
        if self._file is not None:
            try:
                self._file.write(json.dumps(asdict(span)) + "\n")
                self._file.flush()
            except OSError as error:  # a picture with a gap, not a service that ends
                logger.warning("what engines did is not kept any more: %s", error)
                self._file = None


def target_of(label: str) -> str:
    """The target's key of the label that an engine carries: `7` is v7, `ckpt-c1` is c1."""
    return label.removeprefix("ckpt-") if label.startswith("ckpt-") else f"v{label}"


def _read(path: Path) -> list[Span]:
    """Spans of earlier lives; lines that a kill cut short are left out."""
    try:
        lines = path.read_bytes().split(b"\n")[-KEPT - 1 :]
    except FileNotFoundError:
        return []
    spans = []
    for line in lines:
        try:
            spans.append(Span(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return spans
