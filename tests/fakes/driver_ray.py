"""Ray as a job's driver uses it at the end, and nothing behind it: calls are written down in their order."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


class RayError(Exception):
    """ray.exceptions.RayError."""


class Call:
    """handle.method.remote(...)."""

    def __init__(self, ray: DriverRay, name: str) -> None:
        self._ray, self._name = ray, name

    def remote(self, *values: Any) -> Any:
        self._ray.log.append(self._name)
        return self._ray.answers.get(self._name, lambda: None)


class Handle:
    """An actor's handle; it has the methods that are named, and Ray's own."""

    def __init__(self, ray: DriverRay, who: str, methods: tuple[str, ...]) -> None:
        self._ray, self.who = ray, who
        self._methods = {*methods, "__ray_call__", "__ray_terminate__"}
        for method in ("__ray_call__", "__ray_terminate__"):
            setattr(self, method, Call(ray, f"{who}.{method}"))

    def __getattr__(self, name: str) -> Call:
        if name not in self._methods:
            raise AttributeError(f"{self.who} has no {name}")
        return Call(self._ray, f"{self.who}.{name}")


class DriverRay:
    """`answers[who.method]` is called where the answer is waited for; it may raise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.answers: dict[str, Callable[[], Any]] = {}
        ray: Any = types.ModuleType("ray")
        exceptions: Any = types.ModuleType("ray.exceptions")
        util: Any = types.ModuleType("ray.util")
        groups: Any = types.ModuleType("ray.util.placement_group")
        exceptions.RayError = RayError
        groups.remove_placement_group = lambda group: self.log.append(f"remove {group}")
        ray.exceptions, ray.util = exceptions, util
        ray.is_initialized = lambda: True
        ray.get = lambda answer, timeout=None: answer()
        ray.wait = lambda answers, num_returns=1, timeout=None: (answers, [])
        ray.kill = lambda handle, no_restart=False: self.log.append(f"kill {handle.who}")
        for module in (ray, exceptions, util, groups):
            monkeypatch.setitem(sys.modules, module.__name__, module)

    def handle(self, who: str, *methods: str) -> Handle:
        """A handle of an actor with these methods."""
        return Handle(self, who, methods)
