"""The demo's model: a small Qwen2 with a byte-level tokenizer, made on the spot.

It is small enough to learn the tasks on one CPU core in half a minute, and a real
architecture, so the real engine serves it as it would serve a large one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

EOS = "<eos>"
PAD = "<pad>"
EOS_ID = 256
PAD_ID = 257
"""Behind the 256 bytes."""
VOCAB_SIZE = 320
"""256 bytes, two special tokens, padded to a multiple of 64 as engines do."""
MAX_TOKENS = 64
"""Longest sequence the model is made for."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte; `<eos>` ends an answer, `<pad>` fills a batch."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {symbol: number for number, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocab |= {EOS: EOS_ID, PAD: PAD_ID}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS, pad_token=PAD)


def make_model(seed: int) -> Qwen2ForCausalLM:
    """A freshly initialised model in float32; about 0.38 million parameters."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)  # torch's default dtype is float32


def write_base(path: Path, *, seed: int) -> None:
    """Write the untrained model and its tokenizer as a Hugging Face checkpoint."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # a bar for one small file would only break up the demo's own lines
    make_model(seed).save_pretrained(path)
    make_tokenizer().save_pretrained(path)
