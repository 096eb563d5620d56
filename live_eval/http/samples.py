"""Samples of a job in pages, and those of two jobs side by side.

A sample file may have gigabytes and grow while it is read, so it is gone through once for an index
(row, sample, status, reward and where the line is), and a page reads its own lines only. Blocks; call
it in a thread.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from live_eval.http.figures import paired_interval

MAX_TEXT = 20_000
"""Characters of a prompt, an answer or a label in a page."""
KEPT_INDEXES = 8
_TEXTS = ("prompt", "response", "error")

Change = Literal["better", "worse", "same", "unpaired"]


class _Head(msgspec.Struct):
    """What the index needs of a line."""

    row_id: str
    sample: int
    status: str
    reward: float | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample's line."""

    row_id: str
    sample: int
    status: str
    reward: float | None
    offset: int
    length: int

    @property
    def key(self) -> tuple[str, int]:
        """By which samples of two jobs are joined."""
        return self.row_id, self.sample


class SampleIndex:
    """The lines of one file, as it was at one moment."""

    def __init__(self, path: Path) -> None:
        """OSError if it cannot be read; a line that is cut or no sample is left out."""
        self.path = path
        entries: dict[tuple[str, int], Entry] = {}
        decoder = msgspec.json.Decoder(_Head)
        offset = 0
        with path.open("rb") as file:
            for line in file:
                head = _head(line, decoder) if line.endswith(b"\n") else None
                if head is not None:
                    entry = Entry(head.row_id, head.sample, head.status, head.reward, offset, len(line))
                    entries[entry.key] = entry
                offset += len(line)
        self.entries = dict(sorted(entries.items(), key=lambda item: _order(item[0])))

    def read(self, entries: Iterable[Entry]) -> list[dict[str, Any]]:
        """The samples as items of the API."""
        with self.path.open("rb") as file:
            items = []
            for entry in entries:
                file.seek(entry.offset)
                items.append(sample_item(json.loads(file.read(entry.length))))
        return items


class SampleFiles:
    """Indexes of the files that were asked for last; usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: OrderedDict[Path, tuple[tuple[int, int], SampleIndex]] = OrderedDict()

    def index(self, path: Path) -> SampleIndex:
        """The file's index, made anew if the file has changed."""
        info = path.stat()
        stamp = (info.st_size, info.st_mtime_ns)
        with self._lock:
            known = self._indexes.get(path)
            if known is not None and known[0] == stamp:
                self._indexes.move_to_end(path)
                return known[1]
        index = SampleIndex(path)
        with self._lock:
            self._indexes[path] = (stamp, index)
            while len(self._indexes) > KEPT_INDEXES:
                self._indexes.popitem(last=False)
        return index


def _head(line: bytes, decoder: msgspec.json.Decoder[_Head]) -> _Head | None:
    """What the index needs of a line; None if it is no sample."""
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError:
        pass
    try:  # msgspec refuses halves of surrogate pairs, which models do write
        return msgspec.convert(json.loads(line), _Head)
    except (ValueError, msgspec.ValidationError):
        return None


def sample_page(
    index: SampleIndex, *, status: str | None, row_id: str | None, offset: int, limit: int
) -> tuple[int, list[dict[str, Any]]]:
    """How many there are, and these of them."""
    found = [
        entry
        for entry in index.entries.values()
        if (status is None or entry.status == status) and (row_id is None or entry.row_id == row_id)
    ]
    return len(found), index.read(found[offset : offset + limit])


def compare_page(
    left: SampleIndex, right: SampleIndex, *, change: Change | None, offset: int, limit: int
) -> dict[str, Any]:
    """The summary, how many pairs there are of this kind of change, and these of them."""
    keys = sorted(left.entries.keys() | right.entries.keys(), key=_order)
    changes: dict[tuple[str, int], Change] = {
        key: change_of(left.entries.get(key), right.entries.get(key)) for key in keys
    }
    shown = [key for key in keys if change is None or changes[key] == change]
    page = shown[offset : offset + limit]
    lefts, rights = (_items(index, page) for index in (left, right))
    items = []
    for key in page:
        one, other = lefts.get(key), rights.get(key)
        known = one or other or {}
        items.append(
            {
                "row_id": key[0],
                "sample": key[1],
                "prompt": known.get("prompt", ""),
                "label": known.get("label"),
                "change": changes[key],
                "left": one,
                "right": other,
            }
        )
    return {"summary": _summary(left, right, changes), "total": len(shown), "items": items}


def change_of(left: Entry | None, right: Entry | None) -> Change:
    """What became of one sample."""
    if left is None or right is None or left.reward is None or right.reward is None:
        return "unpaired"
    if left.reward == right.reward:
        return "same"
    return "better" if right.reward > left.reward else "worse"


def sample_item(record: dict[str, Any]) -> dict[str, Any]:
    """A sample file's object as the API tells it."""
    cut: list[str] = []
    item: dict[str, Any] = {
        "row_id": str(record["row_id"]),
        "sample": record["sample"],
        "status": record["status"],
        "label": _label(record.get("label"), cut),
        "reward": record.get("reward"),
        "rewards": record.get("rewards", {}),
        "finish_reason": record.get("finish_reason", ""),
        "num_tokens": record.get("num_tokens", 0),
        "engine": record.get("engine", ""),
        "engine_label": record.get("engine_label", ""),
        "attempt": record.get("attempt", 0),
    }
    for name in _TEXTS:
        text = record.get(name)
        item[name] = None if text is None else _text(text, lambda name=name: cut.append(name))
    item["error"] = item["error"] or ""
    return {**item, "cut": cut}


def _label(label: Any, cut: list[str]) -> Any:
    """A label of any JSON type; one that is large comes as the beginning of its text."""
    if label is None or isinstance(label, bool | int | float):
        return label
    text = label if isinstance(label, str) else json.dumps(label, ensure_ascii=False)
    shown = _text(text, lambda: cut.append("label"))
    return label if not isinstance(label, str) and shown == text else shown


def _text(text: str, on_cut: Callable[[], None]) -> str:
    if len(text) > MAX_TEXT:
        on_cut()
    return text[:MAX_TEXT].encode("utf-8", "replace").decode("utf-8")


def _items(index: SampleIndex, keys: list[tuple[str, int]]) -> dict[tuple[str, int], dict[str, Any]]:
    there = [key for key in keys if key in index.entries]
    return dict(zip(there, index.read(index.entries[key] for key in there), strict=True))


def _summary(left: SampleIndex, right: SampleIndex, changes: dict[tuple[str, int], Change]) -> dict[str, Any]:
    kinds = list(changes.values())
    differences: dict[str, list[float]] = {}
    rewards: list[float] = []
    for key, change in changes.items():
        if change != "unpaired":
            one, other = left.entries[key].reward or 0.0, right.entries[key].reward or 0.0
            differences.setdefault(key[0], []).append(other - one)
            rewards += (one, other)
    values = [value for row in differences.values() for value in row]
    return {
        "paired": len(values),
        "better": kinds.count("better"),
        "worse": kinds.count("worse"),
        "same": kinds.count("same"),
        "unpaired": kinds.count("unpaired"),
        "difference": sum(values) / len(values) if values else None,
        "interval": paired_interval(differences, rewards),
    }


def _order(key: tuple[str, int]) -> tuple[int, int, str, int]:
    """Row ids that are numbers in their order, then the others."""
    row_id, sample = key
    number = row_id.isascii() and row_id.isdigit() and len(row_id) < 19
    return (0, int(row_id), "", sample) if number else (1, 0, row_id, sample)
