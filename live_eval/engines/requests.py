"""What goes to an engine to be generated, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from live_eval.errors import EngineDied

if TYPE_CHECKING:
    from collections.abc import Sequence

FinishReason = Literal["stop", "length", "abort", "refused"]


class GenRequest(Protocol):
    """One sample to generate. Exactly one of `text` and `input_ids` is given."""

    @property
    def request_id(self) -> str:
        """Unique to this attempt at this sample; SGLang's rid."""
        ...

    @property
    def text(self) -> str | None:
        """The prompt as text, for the engine's own tokenizer."""
        ...

    @property
    def input_ids(self) -> Sequence[int] | None:
        """The prompt as token ids."""
        ...

    @property
    def sampling(self) -> dict[str, Any]:
        """SGLang's sampling_params."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """One answer."""

    request_id: str
    text: str
    """What was generated, without the prompt."""
    num_tokens: int
    """Number of generated tokens."""
    finish_reason: FinishReason
    """`refused`: the engine will never take this prompt, for example one beyond its context."""
    label: str
    """The weight label that the engine put on this answer; empty if it never reached an engine."""
    engine: str
    """Which engine answered."""
    output_ids: tuple[int, ...] = ()
    detail: str = ""
    """The engine's own words where it refused or aborted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forwarded:
    """An engine's answer to a request that was handed on as it was."""

    status: int
    content_type: str
    body: bytes = field(repr=False)
    engine: str


class RequestsLost(EngineDied):
    """An engine died or hung with requests in flight; the other requests are answered in `done`."""

    def __init__(self, message: str, *, done: Sequence[Generation], lost: Sequence[str]) -> None:
        super().__init__(message)
        self.done = tuple(done)
        self.lost = tuple(lost)
        """Ids of the requests without an answer."""
