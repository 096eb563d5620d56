"""Stand-in for megatron.training.arguments: only the arguments slime reads from Megatron."""

import argparse


def _parser():
    p = argparse.ArgumentParser(
        description="megatron stand-in", allow_abbrev=False, conflict_handler="resolve"
    )
    a = p.add_argument
    for name, typ, default in [
        ("--num-layers", int, None),
        ("--hidden-size", int, None),
        ("--ffn-hidden-size", int, None),
        ("--num-attention-heads", int, None),
        ("--num-query-groups", int, None),
        ("--kv-channels", int, None),
        ("--seq-length", int, None),
        ("--max-position-embeddings", int, None),
        ("--rotary-base", int, 10000),
        ("--norm-epsilon", float, 1e-5),
        ("--vocab-size", int, None),
        ("--make-vocab-size-divisible-by", int, 1),
        ("--tokenizer-model", str, None),
        ("--tokenizer-type", str, None),
        ("--rope-type", str, None),
        ("--num-experts", int, None),
        ("--q-lora-rank", int, None),
        ("--moe-layer-freq", str, None),
        ("--moe-token-dispatcher-type", str, None),
        ("--moe-ffn-hidden-size", int, None),
        ("--moe-shared-expert-intermediate-size", int, None),
        ("--moe-router-topk", int, None),
        ("--tensor-model-parallel-size", int, 1),
        ("--pipeline-model-parallel-size", int, 1),
        ("--context-parallel-size", int, 1),
        ("--expert-model-parallel-size", int, 1),
        ("--expert-tensor-parallel-size", int, 1),
        ("--decoder-first-pipeline-num-layers", int, None),
        ("--decoder-last-pipeline-num-layers", int, None),
        ("--ckpt-step", int, None),
        ("--optimizer", str, "adam"),
        ("--lr-decay-style", str, "constant"),
        ("--weight-decay", float, 0.0),
        ("--log-interval", int, 1),
        ("--tensorboard-dir", str, None),
    ]:
        a(name, type=typ, default=default)
    for name in [
        "--fp16",
        "--bf16",
        "--multi-latent-attention",
        "--untie-embeddings-and-output-weights",
        "--sequence-parallel",
        "--finetune",
        "--no-load-optim",
        "--no-load-rng",
        "--swiglu",
        "--add-qkv-bias",
        "--use-distributed-optimizer",
        "--recompute-activations",
    ]:
        a(name, action="store_true", default=False)
    return p


def parse_args(extra_args_provider=None, ignore_unknown_args=False):
    p = _parser()
    if extra_args_provider is not None:
        p = extra_args_provider(p)
    args = p.parse_known_args()[0] if ignore_unknown_args else p.parse_args()
    args.rank, args.world_size = 0, 1
    return args


def validate_args(args, defaults=None):
    args.data_parallel_size = args.world_size
    args.params_dtype = "bfloat16"
    if args.num_query_groups is None:
        args.num_query_groups = args.num_attention_heads
    args.group_query_attention = args.num_query_groups != args.num_attention_heads
    return args
