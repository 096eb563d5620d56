"""A model of a chosen size that the engine serves on a CPU, and versions of it.

Knows torch and transformers; nothing of live-eval. Invariant: no two versions share a tensor's bytes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from live_eval.demo.model import EOS_ID, PAD_ID, VOCAB_SIZE, make_tokenizer

if TYPE_CHECKING:
    import torch

    from live_eval.publisher.base import NamedTensor

NUM_LAYERS = 8
HEAD = 64
MAX_POSITIONS = 4096
_BYTES_BY_WIDTH_SQUARED = NUM_LAYERS * (2.5 + 9) * 4
"""Attention and MLP of a layer, float32."""
NOISE = 0.02


class EvalModel:
    """The trainer's weights, in float32."""

    def __init__(self, num_bytes: int) -> None:
        import torch
        from transformers import Qwen2Config, Qwen2ForCausalLM

        width = max(round(math.sqrt(num_bytes / _BYTES_BY_WIDTH_SQUARED) / (2 * HEAD)), 1) * 2 * HEAD
        torch.manual_seed(0)
        config = Qwen2Config(
            vocab_size=VOCAB_SIZE,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=NUM_LAYERS,
            num_attention_heads=width // HEAD,
            num_key_value_heads=width // HEAD // 2,
            max_position_embeddings=MAX_POSITIONS,
            tie_word_embeddings=False,
            eos_token_id=EOS_ID,
            pad_token_id=PAD_ID,
            bos_token_id=None,
        )
        self._model = Qwen2ForCausalLM(config)
        self._random = torch.Generator().manual_seed(1)

    def write(self, path: Path) -> None:
        """Write a Hugging Face checkpoint with a tokenizer."""
        from transformers.utils import logging

        logging.disable_progress_bar()
        self._model.save_pretrained(path)
        make_tokenizer().save_pretrained(path)

    def step(self) -> None:
        """Move every tensor, as a training step does."""
        for _, tensor in self.tensors():
            noise: torch.Tensor = tensor.new_empty(tensor.shape).normal_(generator=self._random)
            tensor.add_(noise, alpha=NOISE)

    def tensors(self) -> list[NamedTensor]:
        """The live tensors under their Hugging Face names."""
        return [(name, parameter.detach()) for name, parameter in self._model.named_parameters()]
