"""slime's interfaces as live-eval meets them, hand-written; tests/slime proves that they match a checkout.

Each stand-in has the names, signatures and order of calls of the original, and nothing behind them.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from slime_patch.arguments import EngineFlag

if TYPE_CHECKING:
    import torch

NamedTensors = list[tuple[str, "torch.Tensor"]]
Parse = Callable[..., tuple[Namespace, list[str]]]
"""A command line and changes to slime's arguments -> (slime's parsed arguments, the words)."""

ENGINE_FLAGS = (
    EngineFlag(name="mem-fraction-static"),
    EngineFlag(name="ep-size"),
    EngineFlag(name="enable-metrics", nargs=0),
    EngineFlag(name="device"),
    EngineFlag(name="dtype"),
)
"""Of the SGLang server."""


@dataclass
class EvalDatasetConfig:
    """slime.utils.eval_config.EvalDatasetConfig: the fields that live-eval reads or refuses."""

    name: str
    path: str
    rm_type: str | None = None
    custom_rm_path: str | None = None
    input_key: str | None = "prompt"
    label_key: str | None = "label"
    tool_key: str | None = "tools"
    metadata_key: str | None = "metadata"
    multimodal_keys: dict[str, str] | None = None
    apply_chat_template: bool | None = None
    apply_chat_template_kwargs: dict[str, Any] | None = None
    n_samples_per_eval_prompt: int | None = 1
    temperature: float | None = 1.0
    top_p: float | None = 1.0
    top_k: int | None = -1
    max_response_len: int | None = 16
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    min_new_tokens: int | None = None
    repetition_penalty: float | None = None
    custom_generate_function_path: str | None = None
    app_service: str | None = None
    message_processor: dict[str, Any] | None = None
    reward_model: dict[str, Any] | None = None
    remote_environment: dict[str, Any] | None = None
    metadata_overrides: dict[str, Any] = field(default_factory=dict)


SLIME_DEFAULTS: dict[str, Any] = {
    "hf_checkpoint": "",
    "save": None,
    "colocate": False,
    "offload_train": False,
    "release_train": False,
    "update_weight_mode": "full",
    "update_weight_transport": "nccl",
    "update_weight_disk_dir": None,
    "update_weights_interval": 1,
    "num_critic_only_steps": 0,
    "use_critic": False,
    "debug_train_only": False,
    "debug_rollout_only": False,
    "pipeline_model_parallel_size": 1,
    "rollout_batch_size": 2,
    "n_samples_per_prompt": 2,
    "global_batch_size": 4,
    "num_rollout": 3,
    "start_rollout_id": 0,
    "rollout_num_gpus_per_engine": 1,
    "rollout_function_path": "slime.rollout.sglang_rollout.generate_rollout",
    "eval_function_path": "slime.rollout.sglang_rollout.generate_rollout",
    "custom_generate_function_path": None,
    "rollout_sample_hook_path": None,
    "custom_eval_rollout_log_function_path": None,
    "group_rm": False,
    "rm_type": None,
    "custom_rm_path": None,
    "reward_key": None,
    "eval_reward_key": None,
    "eval_max_prompt_len": None,
    "apply_chat_template": False,
    "use_wandb": False,
    "wandb_mode": None,
    "wandb_key": None,
    "wandb_host": None,
    "wandb_team": None,
    "wandb_group": None,
    "wandb_project": None,
}
"""slime's parsed arguments that live-eval reads, with slime's defaults where it has any."""


def slime_parser() -> argparse.ArgumentParser:
    """slime's parser, as far as eval goes."""
    parser = argparse.ArgumentParser(allow_abbrev=False, conflict_handler="resolve")
    parser.add_argument("--eval-interval", type=int, default=None)
    parser.add_argument("--eval-prompt-data", type=str, default=None, nargs="+")
    parser.add_argument("--eval-config", type=str, default=None)
    parser.add_argument("--eval-temperature", type=float, default=None)
    parser.add_argument("--skip-eval-before-train", action="store_true", default=False)
    return parser


def slime_args(
    words: Sequence[str], *, base: Path, register: Callable[[Any], Any], **changes: Any
) -> Namespace:
    """What slime's parse_args answers for these words: unknown ones are ignored, datasets are resolved."""
    args, _ = register(slime_parser()).parse_known_args(list(words))
    for name, value in {**SLIME_DEFAULTS, "hf_checkpoint": str(base), **changes}.items():
        setattr(args, name, value)
    if "eval_datasets" not in changes:
        pairs = args.eval_prompt_data or []
        args.eval_datasets = [
            EvalDatasetConfig(name=name, path=path)
            for name, path in zip(pairs[::2], pairs[1::2], strict=True)
        ]
    return args


class UpdateWeightFromDistributed:
    """slime's distributed updater on one rank: chunks are handed on, then cleared."""

    def __init__(self, chunks: Callable[[], list[NamedTensors]], *, is_source: bool = True) -> None:
        self.weight_version = 0
        self._is_pp_src_rank = is_source
        self._chunks = chunks
        self.sent: list[list[str]] = []
        self.calls: list[str] = []
        self.fails_with: BaseException | None = None

    def update_weights(self) -> None:
        self.weight_version += 1
        self.calls.append("pause")
        self._send_weights(None)
        self.calls.append("continue")

    def _send_weights(self, pbar: object) -> None:
        for hf_chunk in self._chunks() if self._is_pp_src_rank else []:
            self._on_chunk(hf_chunk)
            self._update_bucket_weights_from_distributed(hf_chunk)

    def _on_chunk(self, hf_chunk: NamedTensors) -> None:
        self.calls.append("chunk")

    def _update_bucket_weights_from_distributed(self, converted_named_tensors: NamedTensors) -> None:
        if self.fails_with is not None:
            raise self.fails_with
        self.sent.append([name for name, _ in converted_named_tensors])
        converted_named_tensors.clear()


class UpdateWeightFromTensor:
    """slime's colocated updater on one rank: it is shown dense chunks, then routed experts."""

    def __init__(
        self,
        rank: int,
        dense: Callable[[], list[NamedTensors]],
        experts: Callable[[], list[NamedTensors]] = list,
    ) -> None:
        self.rank = rank
        self.weight_version = 0
        self._expert_transfer_plan = ["group"] if experts() else []
        self._dense, self._experts = dense, experts
        self.sent: list[list[str]] = []

    def update_weights(self) -> None:
        self.weight_version += 1
        for hf_named_tensors in self._dense():
            self._send_hf_params(hf_named_tensors)
        if self._expert_transfer_plan:
            self._update_expert_weights({})

    def _update_expert_weights(self, megatron_local_weights: dict[str, torch.Tensor]) -> None:
        for hf_named_tensors in self._experts():
            self._send_hf_params(hf_named_tensors)

    def _send_hf_params(self, hf_named_tensors: NamedTensors) -> tuple[list[str], str]:
        self.sent.append([name for name, _ in hf_named_tensors])
        return ["ref"], "long lived"


class UpdateWeightFromDisk:
    """slime's full disk updater on one rank; `write` puts the files of a version into a directory."""

    def __init__(
        self, disk_dir: Path, write: Callable[[Path, int], None], hook: Callable[..., None] | None = None
    ) -> None:
        self.args = Namespace(update_weight_disk_dir=str(disk_dir))
        self.weight_version = 0
        self.rollout_engines: list[Any] = ["engine"]
        self._post_write_hook = hook
        self._write = write

    def update_weights(self) -> None:
        self.weight_version += 1
        version_dir = Path(self.args.update_weight_disk_dir) / f"weight_v{self.weight_version:06d}"
        version_dir.mkdir(parents=True, exist_ok=True)
        self._write(version_dir, self.weight_version)
        if self._post_write_hook is not None:
            self._post_write_hook(self.args, str(version_dir), list(self.rollout_engines))


class RemoteMethod:
    """handle.method.remote(...)."""

    def __init__(self, name: str, log: list[tuple[Any, ...]]) -> None:
        self._name, self._log = name, log

    def remote(self, *values: Any) -> str:
        self._log.append((self._name, *values))
        return self._name


class TrainActorHandle:
    """A Ray handle of a training actor."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> RemoteMethod:
        return RemoteMethod(name, self.log)


class RayTrainGroup:
    """slime.ray.actor_group.RayTrainGroup: what the driver calls."""

    def __init__(self, num_actors: int = 1) -> None:
        self._actor_handlers = [TrainActorHandle() for _ in range(num_actors)]
        self.fails_with: BaseException | None = None

    def async_train(self, rollout_id: int, rollout_data_ref: Any, external_data: Any = None) -> list[str]:
        return [handle.train.remote(rollout_id, rollout_data_ref) for handle in self._actor_handlers]

    def update_weights(self) -> list[str]:
        if self.fails_with is not None:
            raise self.fails_with
        return [handle.update_weights.remote() for handle in self._actor_handlers]


@dataclass
class Sample:
    """slime.utils.types.Sample, as a dataset makes it."""

    prompt: Any
    label: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)


class Dataset:
    """slime.utils.data.Dataset over rows that are there already; `path` names them."""

    ROWS: ClassVar[dict[str, list[dict[str, Any]]]] = {}

    def __init__(
        self,
        path: str,
        tokenizer: Any,
        processor: Any,
        max_length: int | None,
        *,
        prompt_key: str = "text",
        multimodal_keys: Any = None,
        label_key: str | None = None,
        tool_key: str | None = None,
        metadata_key: str = "metadata",
        seed: int = 42,
        apply_chat_template: bool = False,
        apply_chat_template_kwargs: Any = None,
    ) -> None:
        if path not in self.ROWS:
            raise FileNotFoundError(f"Prompt dataset path '{path}' does not exist.")
        self.samples = [
            Sample(
                prompt=f"<user>{row[prompt_key]}<assistant>" if apply_chat_template else row[prompt_key],
                label=row[label_key] if label_key is not None else None,
                metadata=dict(row.get(metadata_key) or {}),
            )
            for row in self.ROWS[path]
            if max_length is None or len(tokenizer.encode(str(row[prompt_key]))) <= max_length
        ]


class ByteTokenizer:
    """One token a byte; with `bos` it puts a special one in front of a text, as some models' do."""

    def __init__(self, *, bos: bool = False) -> None:
        self._bos = bos

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        tokens = list(text.encode())
        return [256, *tokens] if self._bos and add_special_tokens else tokens
