"""Stand-in for SGLang's CUDA kernels, which have no CPU wheel.

On a CPU SGLang imports names from here and then takes its native torch paths. A name that is
called after all says so instead of computing something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} needs the real package, which is for GPUs")

    missing.__name__ = name
    return missing
