"""Guards of the product that can be switched off in a worker, to see that the bench misses them.

Each is replaced in the running process; the product has no switch for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def switch_off(name: str) -> None:
    """Take a guard out of this process; an empty name takes none."""
    if name:
        GUARDS[name]()


def _digest_check() -> None:
    """A source's digests are not compared with those of what arrived."""
    import msgspec

    from live_eval.subscriber.session import SyncSession

    check = SyncSession._check_done

    def lenient(self: Any, done: Any, source: Any) -> None:
        check(self, msgspec.structs.replace(done, digests={}), source)

    SyncSession._check_done = lenient  # type: ignore[method-assign]


def _completeness_check() -> None:
    """Nobody asks whether every tensor of the model came."""
    from live_eval.store import writer
    from live_eval.subscriber.expected import ExpectedTensors

    ExpectedTensors.check_whole = lambda self, digests: None  # type: ignore[method-assign]
    writer.check_whole = lambda base, digests: None  # type: ignore[assignment]


def _deadline() -> None:
    """A sync may be silent for ever."""
    from live_eval.subscriber.session import SyncSession

    SyncSession.on_tick = lambda self, now: self.verdict  # type: ignore[method-assign]


def _rename_last() -> None:
    """A version grows where versions are, instead of being moved there when it is whole."""
    from live_eval.store.directories import StoreDirectories

    StoreDirectories.staging_of = StoreDirectories.version  # type: ignore[method-assign]
    StoreDirectories.publish = lambda self, version: self.version(version)  # type: ignore[method-assign]


GUARDS: dict[str, Callable[[], None]] = {
    "digest_check": _digest_check,
    "completeness_check": _completeness_check,
    "deadline": _deadline,
    "rename_last": _rename_last,
}

NOTICED_BY: dict[str, tuple[str, ...]] = {
    "digest_check": ("swap", "corrupt", "stale"),
    "completeness_check": ("drop",),
    "deadline": ("trainer freeze",),
    "rename_last": ("receiver kill",),
}
"""Guard -> faults that it guards against."""
