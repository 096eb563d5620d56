"""How syncs grow: with the bytes of the weights, the number of tensors, the number of kept versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.figures import Measured
from benchmarks.growth.curves import HELD, MEMCPY, QUEUED, SEALED, Panel
from benchmarks.growth.queueing import Waiting
from benchmarks.places import directory
from benchmarks.site import Site
from benchmarks.training import seconds_of
from benchmarks.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.growth.settings import GrowthSettings

NUM_WARM_UPS = 1
WINDOW = 2
"""Versions before and after the one at which a store has as many as a point says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Times:
    held: Measured
    sealed: Measured
    memcpy: Measured


def by_bytes(settings: GrowthSettings, place: Path) -> Panel:
    """300 tensors of growing size."""
    panel = Panel("GB", "300 tensors")
    for gigabytes in settings.gigabytes:
        weights = Weights.make(int(gigabytes * 1e9))
        _add(panel, weights.num_bytes / 1e9, _measure(weights, place, settings.num_rounds))
    return panel


def by_tensors(settings: GrowthSettings, place: Path) -> Panel:
    """The same bytes in more and more tensors."""
    panel = Panel("tensors", f"{settings.bytes_of_tensors / 1e9:g} GB")
    for number in settings.tensors:
        weights = Weights.many(number, settings.bytes_of_tensors)
        _add(panel, number, _measure(weights, place, settings.num_rounds))
    return panel


def by_versions(settings: GrowthSettings, place: Path, ledger: Path) -> Panel:
    """Syncs into a store that keeps more and more versions, beside a service that queues their jobs."""
    weights = Weights.make(settings.bytes_of_version)
    panel = Panel("versions kept", f"{settings.bytes_of_version / 1e9:g} GB, 1 dataset")
    queued: list[float] = []
    most = max(settings.versions)
    with (
        directory(place) as root,
        closing(Site(root, weights, name=root.name, num_kept=most)) as site,
        closing(site.open_store()) as store,
        closing(Waiting(store, ledger, num_datasets=1)) as waiting,
    ):
        for number in range(most + WINDOW):
            _sync(site, weights, number)
            queued.append(waiting.queue(number + 1))
    for number in settings.versions:
        window = slice(max(number - WINDOW - 1, 0), number + WINDOW)
        panel.add(HELD, number, Measured(seconds=[times.held_s for times in site.times[window]]))
        panel.add(SEALED, number, Measured(seconds=[times.commit_s for times in site.times[window]]))
        panel.add(QUEUED, number, Measured(seconds=queued[window]))
    return panel


def _measure(weights: Weights, place: Path, num_rounds: int) -> _Times:
    memcpy = peers.Memcpy(weights, 1)
    copies: list[float] = []
    with directory(place) as root, closing(Site(root, weights, name=root.name)) as site:
        for number in range(num_rounds + NUM_WARM_UPS):
            memcpy.run()
            copies.append(seconds_of(memcpy.run))
            _sync(site, weights, number)
        times = site.times[NUM_WARM_UPS:]
    return _Times(
        held=Measured(seconds=[each.held_s for each in times]),
        sealed=Measured(seconds=[each.commit_s for each in times]),
        memcpy=Measured(seconds=copies[NUM_WARM_UPS:]),
    )


def _sync(site: Site, weights: Weights, number: int) -> None:
    weights.change(number)
    site.sync()
    site.settle()


def _add(panel: Panel, amount: float, times: _Times) -> None:
    for name, measured in _named(times):
        panel.add(name, amount, measured)


def _named(times: _Times) -> Iterator[tuple[str, Measured]]:
    yield SEALED, times.sealed
    yield HELD, times.held
    yield MEMCPY, times.memcpy
