"""A random two-layer Qwen2 checkpoint with a byte-level tokenizer, made on the spot.

Small enough for the real engine to load in milliseconds, whole enough for transformers and
SGLang to take it for what it is. Two seeds give two models that answer differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

EOS_ID = 256
PAD_ID = 257
VOCAB_SIZE = 512


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, then `<eos>` and `<pad>`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {symbol: number for number, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocab |= {"<eos>": EOS_ID, "<pad>": PAD_ID}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>")


def tiny_qwen2(
    *, seed: int = 0, dtype: str = "float32", tied: bool = False, hidden_size: int = 64
) -> Qwen2ForCausalLM:
    """The model in memory, about 0.17 million parameters; `dtype` is torch's name without `torch.`."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
        # The default initialisation is so flat that all answers look alike; this one is lively.
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" not in name:
                    parameter.normal_(0.0, 0.2)
    return model.to(getattr(torch, dtype))


def write_tiny_model(
    path: Path, *, seed: int = 0, dtype: str = "float32", tied: bool = False, hidden_size: int = 64
) -> Path:
    """Write the model and its tokenizer as a Hugging Face checkpoint; returns `path`."""
    tiny_qwen2(seed=seed, dtype=dtype, tied=tied, hidden_size=hidden_size).save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path
