"""The tokenizer of a Hugging Face checkpoint, for prompts. Imports transformers when it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from live_eval.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from live_eval.evaluation.set_config import EvalSetConfig


def tokenizer_for(
    configs: Iterable[EvalSetConfig], checkpoint: Path, *, trust_code: bool = False
) -> HuggingFaceTokenizer | None:
    """The checkpoint's tokenizer if one of the datasets needs it; ConfigError if there is none."""
    if not any(config.needs_tokenizer for config in configs):
        return None
    return HuggingFaceTokenizer(checkpoint, trust_code=trust_code)


class HuggingFaceTokenizer:
    """A PromptTokenizer."""

    def __init__(self, checkpoint: Path, *, trust_code: bool = False) -> None:
        """ConfigError if the directory has no tokenizer that can be loaded.

        Python files of the checkpoint are run only if `trust_code`.
        """
        from transformers import AutoTokenizer

        self._checkpoint = checkpoint
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(
                str(checkpoint), trust_remote_code=trust_code
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{checkpoint} has no tokenizer that can be loaded, which a chat template or a bound on "
                f"prompts needs: {error}"
            ) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None,
        options: Mapping[str, Any],
    ) -> str:
        """The chat through the model's template; DatasetError with the template's own words."""
        from jinja2 import TemplateError

        if not self._tokenizer.chat_template:
            raise DatasetError(
                f"the tokenizer of {self._checkpoint} has no chat template: leave apply_chat_template out"
            )
        try:
            return self._tokenizer.apply_chat_template(
                list(messages), tools=tools, tokenize=False, add_generation_prompt=True, **options
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise DatasetError(f"the chat template cannot take it: {error}") from error

    def encode(self, text: str, *, special_tokens: bool) -> list[int]:
        """Token ids; a text that begins with the BOS itself has one all the same."""
        ids = self._tokenizer.encode(text, add_special_tokens=special_tokens)
        bos = self._tokenizer.bos_token_id
        return ids[1:] if special_tokens and bos is not None and ids[:2] == [bos, bos] else ids
