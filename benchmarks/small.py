"""What a sync of very many small tensors costs by the tensor, beside other ways to keep them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.figures import Figure, Measured, Shown
from benchmarks.places import describe_place, directory
from benchmarks.site import Site
from benchmarks.training import seconds_of
from benchmarks.weights import Weights

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.settings import Settings
    from benchmarks.update import Update

BYTES_A_TENSOR = 1024
NUM_WARM_UPS = 1


def measure_small(settings: Settings, place: Path) -> list[Shown]:
    """Sync `settings.num_small` tensors, and export and put them, one after the other, some times."""
    weights = Weights.many(settings.num_small, settings.num_small * BYTES_A_TENSOR)
    memcpy = peers.Memcpy(weights, 1)
    with directory(place) as root, closing(Site(root, weights, name=root.name)) as site:
        others: dict[str, Update] = {
            "save_file": peers.export(weights, root),
            "ray.put": peers.ray_put(weights.arrays()),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ("memcpy", *others)}
        for number in range(settings.num_rounds + NUM_WARM_UPS):
            if number == NUM_WARM_UPS:
                site.times.clear()
                seconds = {name: [] for name in seconds}
            weights.change(number)
            seconds["memcpy"].append(seconds_of(memcpy.run))
            site.sync()
            site.settle()
            for name, update in others.items():
                seconds[name].append(seconds_of(update.run))
                update.finish()
        held = [times.held_s for times in site.times]
        commit = [times.commit_s for times in site.times]
    found = {name: Measured(seconds=times) for name, times in seconds.items()}
    named = {"sync held_s": held, "commit() returned -> sealed": commit}
    ours = {what: Measured(seconds=times) for what, times in named.items()}
    return list(_figures(ours, found, weights, describe_place(place)))


def _figures(
    ours: dict[str, Measured], others: dict[str, Measured], weights: Weights, place: str
) -> Iterator[Shown]:
    num_tensors = len(weights.tensors)
    size = f"{num_tensors:,} tensors"
    peer = "; ".join(f"{name} {_each(times, num_tensors)} us" for name, times in others.items())
    for what, times in ours.items():
        figure = Figure(
            figure=f"{what}, {size}, {place}",
            value=_each(times, num_tensors),
            goal=None,
            peer=peer,
            unit="us a tensor",
        )
        absolute = f"{times.describe(weights.num_bytes)} in all"
        yield Shown(figure=figure, what=what, size=size, place=place, absolute=absolute)


def _each(times: Measured, num_tensors: int) -> float:
    """Microseconds a tensor."""
    return round(times.median / num_tensors * 1e6, 2)
