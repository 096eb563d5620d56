"""From a row's prompt to what the engine is sent: a text, or token ids.

Owns the one place where special tokens come from. A chat gets them from the model's template, and the
template's text is tokenized without adding any; a plain text gets the tokenizer's, or none. Refuses
what a text model cannot take.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from live_eval.errors import DatasetError

if TYPE_CHECKING:
    from live_eval.evaluation.set_config import EvalSetConfig


class PromptTokenizer(Protocol):
    """The model's tokenizer and chat template."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None,
        options: Mapping[str, Any],
    ) -> str:
        """The chat as text, with the head of the answer; DatasetError if the template cannot take it."""
        ...

    def encode(self, text: str, *, special_tokens: bool) -> list[int]:
        """Token ids of a text."""
        ...


class PromptFault(DatasetError):
    """A row's prompt cannot be sent; the text says why, and whoever knows the row adds where."""


def build_prompt(
    fields: Mapping[str, Any], config: EvalSetConfig, tokenizer: PromptTokenizer | None
) -> tuple[str, tuple[int, ...] | None, list[Any] | None]:
    """The prompt's text, its token ids where they are made here, and its tools; else PromptFault."""
    if config.prompt_key not in fields:
        raise PromptFault(f"no field {config.prompt_key!r}; set prompt_key to one of {sorted(fields)}")
    prompt = fields[config.prompt_key]
    tools = _tools(fields, config)
    if config.needs_tokenizer and tokenizer is None:
        raise PromptFault("the prompts need the model's tokenizer, and none was given")
    if config.apply_chat_template:
        assert tokenizer is not None
        text = tokenizer.render(_messages(prompt), tools=tools, options=config.apply_chat_template_kwargs)
    else:
        text = _plain_text(prompt)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptFault("the prompt has half of a surrogate pair, which is no text") from error
    if not config.needs_tokenizer or tokenizer is None:
        return text, None, tools
    special = config.special_tokens and not config.apply_chat_template
    return text, tuple(tokenizer.encode(text, special_tokens=special)), tools


def _plain_text(prompt: Any) -> str:
    if isinstance(prompt, list):
        raise PromptFault(
            "the prompt is a list of chat messages: set apply_chat_template, or write the prompt as the "
            "string that the model shall see"
        )
    if not isinstance(prompt, str):
        raise PromptFault(f"the prompt is a {type(prompt).__name__}; give a string")
    if not prompt:
        raise PromptFault("the prompt is empty")
    return prompt


def _messages(prompt: Any) -> list[dict[str, Any]]:
    if not isinstance(prompt, list):
        return [{"role": "user", "content": _plain_text(prompt)}]
    if not prompt:
        raise PromptFault("the chat has no messages")
    for message in prompt:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise PromptFault("each chat message must be an object with a role")
        _check_content(message)
    return prompt


def _check_content(message: Mapping[str, Any]) -> None:
    content = message.get("content")
    if isinstance(content, str) or (content is None and message.get("tool_calls")):
        return
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
            continue
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        raise PromptFault(f"only text is supported: a chat message holds {kind!r}")


def _tools(fields: Mapping[str, Any], config: EvalSetConfig) -> list[Any] | None:
    tools = fields.get(config.tool_key) if config.tool_key is not None else None
    if tools is None:
        return None
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except ValueError as error:
            raise PromptFault(f"{config.tool_key} is text that is no JSON: {error}") from error
    if not isinstance(tools, list):
        raise PromptFault(f"{config.tool_key} is a {type(tools).__name__}: give a list of tools")
    return tools
