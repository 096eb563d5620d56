"""A PromptTokenizer of one token a byte, whose chat template emits the BOS itself, as some models' do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BOS = 256


class ChatTokenizer:
    """`<bos>`, the template's settings and tools if any, each message, the answer's head."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None,
        options: Mapping[str, Any],
    ) -> str:
        """The chat as text."""
        turns = "".join(f"<{message['role']}>{message['content']}" for message in messages)
        return f"<bos>{dict(options) or ''}{tools or ''}{turns}<assistant>"

    def encode(self, text: str, *, special_tokens: bool) -> list[int]:
        """`<bos>` in the text is one token, and `special_tokens` puts one in front."""
        own = [BOS] if text.startswith("<bos>") else []
        return [BOS] * special_tokens + own + list(text.removeprefix("<bos>").encode())
