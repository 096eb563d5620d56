"""A small mixture-of-experts model as a trainer of two pipeline ranks holds it, in Hugging Face names.

Each rank sends what slime's updater sends: tensors that are not routed first, then chunks of experts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages import TensorMeta

if TYPE_CHECKING:
    from collections.abc import Iterator

NUM_LAYERS = 2
NUM_EXPERTS = 4
HIDDEN, EXPERT_SIZE, VOCAB = 8, 4, 16


def _meta(name: str, *shape: int) -> TensorMeta:
    return TensorMeta(name, "bfloat16", shape)


def _layer(number: int) -> Iterator[TensorMeta]:
    prefix = f"model.layers.{number}."
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield _meta(f"{prefix}{norm}.weight", HIDDEN)
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        yield _meta(f"{prefix}self_attn.{name}.weight", HIDDEN, HIDDEN)
    yield _meta(f"{prefix}mlp.gate.weight", NUM_EXPERTS, HIDDEN)
    for expert in range(NUM_EXPERTS):
        for name in ("gate_proj", "up_proj"):
            yield _meta(f"{prefix}mlp.experts.{expert}.{name}.weight", EXPERT_SIZE, HIDDEN)
        yield _meta(f"{prefix}mlp.experts.{expert}.down_proj.weight", HIDDEN, EXPERT_SIZE)


def stage(rank: int) -> list[TensorMeta]:
    """What a pipeline rank holds: a layer, and the embedding or the head."""
    if rank == 0:
        return [_meta("model.embed_tokens.weight", VOCAB, HIDDEN), *_layer(0)]
    return [*_layer(1), _meta("model.norm.weight", HIDDEN), _meta("lm_head.weight", VOCAB, HIDDEN)]


MODEL = (*stage(0), *stage(1))


def chunks(rank: int) -> list[list[TensorMeta]]:
    """In slime's order: everything but experts, then the experts in two batches."""
    experts = [meta for meta in stage(rank) if ".experts." in meta.name]
    others = [meta for meta in stage(rank) if ".experts." not in meta.name]
    half = len(experts) // 2
    return [others[:3], others[3:], experts[:half], experts[half:]]
