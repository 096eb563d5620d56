"""Arguments of the eval engines' SGLang servers: those of the rollout engines, then the user's own.

Works on the command line's words, so that only what the user gave is passed on and SGLang's own
defaults stay. Settings that belong to the rollout engines' size (expert and data parallelism, the
share of memory) are refused where the eval engines have another size, instead of failing in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from live_eval.errors import ConfigError

ROLLOUT_PREFIX = "--sglang-"

NOT_INHERITED_PREFIXES = ("router-",)
NOT_INHERITED = {
    "server-concurrency",
    "config",
    "enable-metrics",
    "enable-deterministic-inference",
    "device",
    "dtype",
    # What slime does not take either: it sets them itself, as live-eval does.
    "model-path",
    "tp-size",
    "tensor-parallel-size",
    "host",
    "port",
    "nnodes",
    "node-rank",
    "dist-init-addr",
    "base-gpu-id",
    "gpu-id-step",
    "nccl-port",
    "trust-remote-code",
    "skip-server-warmup",
}
"""slime's own settings, and those that have a place of their own in live-eval's configuration."""

BY_SIZE = {
    "ep-size",
    "expert-parallel-size",
    "ep",
    "dp-size",
    "data-parallel-size",
    "enable-dp-attention",
    "enable-dp-lm-head",
    "moe-dense-tp-size",
    "pp-size",
    "pipeline-parallel-size",
    "mem-fraction-static",
}
"""They fit one tensor parallel size and not another."""


def flags_with_values(argv: Sequence[str], prefix: str) -> Iterator[tuple[str, list[str]]]:
    """(name without prefix, values) of every flag that starts with `prefix`, in order."""
    name, values = "", []
    for token in [*argv, "--"]:
        if not token.startswith("--"):
            values.append(token)
            continue
        if name.startswith(prefix):
            yield name.removeprefix(prefix), values
        name, _, value = token.partition("=")
        values = [value] if "=" in token else []


def device_of(argv: Sequence[str], own: Sequence[str]) -> str:
    """`cpu`, `cuda`, ...: the eval engines' own --eval-sglang-device, else the rollout engines'."""
    device = "cuda"
    for name, values in [*flags_with_values(argv, ROLLOUT_PREFIX), *flags_with_values(own, "--")]:
        if name == "device" and values:
            device = values[-1]
    return device


def engine_args(
    argv: Sequence[str], own: Sequence[str], *, rollout_gpus_per_engine: int, gpus_per_engine: int
) -> tuple[str, ...]:
    """Arguments of one eval server besides model, size and address; the last one of a name wins.

    `own` are the user's --eval-sglang-* as SGLang's own words. ConfigError if an inherited setting
    belongs to another size of engine and the user gave none for the eval engines.
    """
    own_names = {name for name, _ in flags_with_values(own, "--")}
    inherited: list[str] = []
    for name, values in flags_with_values(argv, ROLLOUT_PREFIX):
        if name in NOT_INHERITED or name in own_names or name.startswith(NOT_INHERITED_PREFIXES):
            continue
        if name in BY_SIZE and rollout_gpus_per_engine != gpus_per_engine:
            given = f"--sglang-{name} {' '.join(values)}".strip()
            raise ConfigError(
                f"{given} is for rollout engines of {rollout_gpus_per_engine} GPUs, and an eval engine has "
                f"{gpus_per_engine}: give --eval-sglang-{name}, or --eval-num-gpus-per-engine "
                f"{rollout_gpus_per_engine}"
            )
        inherited += [f"--{name}", *values]
    kept = [
        token
        for name, values in flags_with_values(own, "--")
        if name not in ("device", "dtype")
        for token in (f"--{name}", *values)
    ]
    return ("--trust-remote-code", *inherited, *kept)


def dtype_of(argv: Sequence[str], own: Sequence[str]) -> str | None:
    """The engines' dtype where the user gave one that is no `auto`; None: the checkpoint's own."""
    dtype = None
    for name, values in [*flags_with_values(argv, ROLLOUT_PREFIX), *flags_with_values(own, "--")]:
        if name == "dtype" and values:
            dtype = None if values[-1] == "auto" else values[-1]
    return dtype
