"""The seam to whoever generates: what the runner asks, what it gets, and when it fails.

An engine group's lease is the real source. The runner relies on nothing but this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class GenRequest:
    """One sample to generate. Exactly one of `text` and `input_ids` is given."""

    request_id: str
    """Unique to this attempt at this sample."""
    text: str | None = None
    input_ids: tuple[int, ...] | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    """SGLang's sampling_params."""


class Generation(Protocol):
    """One answer."""

    @property
    def request_id(self) -> str:
        """The request's id; answers are matched by it, never by their position."""
        ...

    @property
    def text(self) -> str:
        """What was generated, without the prompt."""
        ...

    @property
    def num_tokens(self) -> int:
        """Number of generated tokens."""
        ...

    @property
    def finish_reason(self) -> str:
        """`stop`, `length`, `abort`, or `refused`: the engine will never take this prompt."""
        ...

    @property
    def detail(self) -> str:
        """The engine's own words where it refused."""
        ...

    @property
    def label(self) -> str:
        """The weight label that the engine put on this answer; means nothing if aborted or refused."""
        ...

    @property
    def engine(self) -> str:
        """Which engine answered."""
        ...


class SampleSource(Protocol):
    """Engines that are pinned on one target for the time of one job."""

    async def generate(self, requests: Sequence[GenRequest]) -> Sequence[Generation]:
        """Answer the requests, in any order.

        EngineError: requests of this call are lost, and repin() is needed before they can be
        asked again. Answers that are there all the same are in the error's attribute `done`, if
        it has one. A request without an answer, there or in the result, counts as lost.
        """
        ...

    async def check_after(self) -> None:
        """Prove that the engines still hold the target; PinMismatch if they do not."""
        ...

    async def repin(self) -> None:
        """Bring engines that died back on the target; EngineError or StoreError if it cannot be."""
        ...

    async def abort(self) -> None:
        """End all requests in flight: their generate() returns answers that finished by `abort`.

        Later requests may be answered so too, until the target is pinned anew.
        """
        ...
