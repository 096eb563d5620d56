"""What the stand-in's modules answer when they are asked for a name."""

from __future__ import annotations


class Inert:
    """An image operation that can be imported, subclassed and constructed, never applied."""

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        pass

    def __call__(self, *_args: object, **_kwargs: object) -> None:
        raise NotImplementedError(f"{type(self).__name__} needs the real torchvision")


def inert(name: str) -> type[Inert]:
    """A class called `name`; AttributeError for dunder names, so that imports stay honest."""
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (Inert,), {})
