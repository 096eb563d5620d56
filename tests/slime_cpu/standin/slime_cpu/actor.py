"""CPU training actor that takes the place of slime.backends.megatron_utils.actor.

Holds a small HF model, does a plain policy-gradient step, and hands a Megatron-named view of its
weights to slime's own UpdateWeightFromDistributed (real megatron.core.mpu, gloo groups)."""

import logging
import os
from argparse import Namespace
from copy import deepcopy
from pathlib import Path

import ray
import torch
import torch.distributed as dist
from megatron.core import mpu
from slime.observability import logging_utils
from slime.observability.logging_utils import init_tracking
from slime.observability.timer import Timer, inverse_timer, timer, with_defer
from slime.ray.train_actor import TrainRayActor
from slime.utils.data import process_rollout_data
from slime.utils.distributed_utils import get_gloo_group
from slime.utils.memory_utils import clear_memory
from transformers import AutoConfig, AutoModelForCausalLM

from live_eval.engines.fingerprint import token_ids
from slime_cpu.probe import emit

logger = logging.getLogger(__name__)


class MegatronNamedView:
    """Duck-types the three things slime's weight iterator asks of a Megatron model chunk:
    .config, .named_parameters(), .named_buffers() - with Megatron parameter names and layouts.

    Parameters live here, as in Megatron: what is sent is these very tensors, and `overwrite` is what an
    optimizer step does to them in place."""

    def __init__(self, hf_model, args, dtype):
        self.m, self.args, self.dtype = hf_model, args, dtype
        self.held = {}
        self.config = Namespace(
            pipeline_model_parallel_size=1,
            num_layers=args.num_layers,
            num_layers_in_first_pipeline_stage=None,
            num_layers_in_last_pipeline_stage=None,
            virtual_pipeline_model_parallel_size=None,
            pipeline_model_parallel_layout=None,
            account_for_embedding_in_pipeline_split=False,
            account_for_loss_in_pipeline_split=False,
        )

    def _qkv(self, at, kind):
        g = self.args.num_query_groups
        parts = [getattr(getattr(at, n), kind) for n in ("q_proj", "k_proj", "v_proj")]
        tail = parts[0].shape[1:]
        parts = [p.data.view(g, p.shape[0] // g, *tail) for p in parts]
        return torch.cat(parts, dim=1).reshape(-1, *tail)

    def overwrite(self):
        for tensor in self.held.values():
            tensor.normal_()

    def named_parameters(self):
        for name, tensor in self._megatron_tensors():
            held = self.held.setdefault(name, torch.empty(tensor.shape, dtype=self.dtype))
            held.copy_(tensor.data)
            # slime's delta updater keeps what .cpu() gives it: a copy from a GPU, the tensor itself on a CPU.
            sent = held.clone() if self.args.update_weight_mode == "delta" else held
            parameter = torch.nn.Parameter(sent, requires_grad=False)
            parameter.tensor_model_parallel = False
            yield name, parameter

    def _megatron_tensors(self):
        m, pre = self.m.model, "module.module."
        yield pre + "embedding.word_embeddings.weight", m.embed_tokens.weight
        for i, layer in enumerate(m.layers):
            q = f"{pre}decoder.layers.{i}."
            yield q + "self_attention.linear_proj.weight", layer.self_attn.o_proj.weight
            yield q + "self_attention.linear_qkv.layer_norm_weight", layer.input_layernorm.weight
            yield q + "self_attention.linear_qkv.weight", self._qkv(layer.self_attn, "weight")
            if layer.self_attn.q_proj.bias is not None:
                yield q + "self_attention.linear_qkv.bias", self._qkv(layer.self_attn, "bias")
            yield q + "mlp.linear_fc1.layer_norm_weight", layer.post_attention_layernorm.weight
            yield (
                q + "mlp.linear_fc1.weight",
                torch.cat([layer.mlp.gate_proj.weight.data, layer.mlp.up_proj.weight.data]),
            )
            yield q + "mlp.linear_fc2.weight", layer.mlp.down_proj.weight
        yield pre + "decoder.final_layernorm.weight", m.norm.weight
        if not self.m.config.tie_word_embeddings:
            yield pre + "output_layer.weight", self.m.lm_head.weight

    def named_buffers(self):
        return iter(())


class MegatronTrainRayActor(TrainRayActor):
    @with_defer(lambda: Timer().start("train_wait"))
    def init(self, args, role, with_ref=False, with_opd_teacher=False):
        super().init(args, role, with_ref, with_opd_teacher)
        torch.set_num_threads(1)
        mpu.initialize_model_parallel()  # tp = pp = cp = 1, so data parallel = world
        main = dist.get_rank() == 0
        if main:
            init_tracking(args, primary=False, role=role)
        torch.manual_seed(args.seed)
        self.hf_config = AutoConfig.from_pretrained(args.hf_checkpoint, trust_remote_code=True)
        self.model = AutoModelForCausalLM.from_pretrained(args.hf_checkpoint, dtype=torch.float32)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=args.lr or 1e-3)
        loaded = -1
        if args.load and os.path.exists(p := os.path.join(args.load, "latest_checkpointed_iteration.txt")):
            loaded = int(Path(p).read_text())
            st = torch.load(os.path.join(args.load, f"iter_{loaded:07d}.pt"), weights_only=True)
            self.model.load_state_dict(st["model"])
        self.train_parallel_config = {
            "dp_size": mpu.get_data_parallel_world_size(with_context_parallel=False),
            "cp_size": mpu.get_context_parallel_world_size(),
            "vpp_size": 1,
            "microbatch_group_size_per_vp_stage": 1,
        }
        if args.vocab_size is None:
            args.vocab_size = self.hf_config.vocab_size

        dtype = getattr(torch, str(getattr(self.hf_config, "dtype", "bfloat16")).replace("torch.", ""))
        self.view = MegatronNamedView(self.model, args, dtype)
        self.weight_updater = self._updater_class()(
            args,
            [self.view],
            weights_getter=lambda: None,
            model_name=args.model_name or type(self.hf_config).__name__.lower(),
            quantization_config=getattr(self.hf_config, "quantization_config", None),
        )
        self.weight_updater.weight_version = getattr(args, "update_weight_start_version", 0)
        clear_memory()
        return loaded + 1

    def _updater_class(self):
        """As MegatronTrainRayActor.init chooses; the full disk updater's writer is Hugging Face's."""
        if self.args.update_weight_mode == "delta":
            from slime.backends.megatron_utils.update_weight.update_weight_from_disk_delta import (
                UpdateWeightFromDiskDelta,
            )

            return UpdateWeightFromDiskDelta
        if self.args.update_weight_transport == "disk":
            from slime.backends.megatron_utils.update_weight import update_weight_from_disk

            update_weight_from_disk.save_hf_model_to_path = self._save_hf
            return update_weight_from_disk.UpdateWeightFromDisk
        from slime.backends.megatron_utils.update_weight.update_weight_from_distributed import (
            UpdateWeightFromDistributed,
        )

        return UpdateWeightFromDistributed

    def _save_hf(self, args, directory, model, **_):
        if dist.get_rank() == 0:
            deepcopy(self.model).to(torch.bfloat16).save_pretrained(directory)

    def sleep(self, tags=None): ...
    def wake_up(self, tags=None): ...

    def _get_parallel_config(self):
        return self.train_parallel_config

    def train(self, rollout_id, rollout_data_ref, external_data=None):
        with timer("data_preprocess"):
            data = process_rollout_data(
                self.args,
                rollout_data_ref,
                mpu.get_data_parallel_rank(with_context_parallel=False),
                mpu.get_data_parallel_world_size(with_context_parallel=False),
            )
        with inverse_timer("train_wait"), timer("train"), timer("actor_train"):
            self.opt.zero_grad()
            n, total, diffs = len(data["tokens"]), 0.0, []
            roll_lp = data.get("rollout_log_probs") or [None] * n
            for tok, rlen, rew, mask, rlp in zip(
                data["tokens"],
                data["response_lengths"],
                data["rewards"],
                data["loss_masks"],
                roll_lp,
                strict=True,
            ):
                tok = torch.as_tensor(tok, dtype=torch.long).view(1, -1)
                rlen, rew = int(rlen), float(rew)
                logits = self.model(tok).logits[0, -rlen - 1 : -1]
                lp = torch.log_softmax(logits.float(), -1).gather(1, tok[0, -rlen:, None])[:, 0]
                if (
                    rlp is not None
                ):  # SGLang's own logprobs: equal (to bf16 noise) iff the engine holds these weights
                    diffs.append((lp.detach() - torch.as_tensor(rlp, dtype=torch.float32)).abs().max().item())
                m = torch.as_tensor(mask, dtype=torch.float32)
                loss = -(rew * lp * m).sum() / m.sum().clamp(min=1) / n
                loss.backward()
                total += loss.item()
            w = dist.get_world_size()
            for p in self.model.parameters():
                if w > 1 and p.grad is not None:
                    dist.all_reduce(p.grad, group=get_gloo_group())
                    p.grad /= w
            gn = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).item()
            self.opt.step()
        emit(
            who=f"trainer[{dist.get_rank()}]",
            method="train",
            rollout_id=rollout_id,
            samples=n,
            loss=total,
            grad_norm=gn,
            max_abs_logprob_diff_vs_engine=max(diffs, default=None),
        )
        if dist.get_rank() == 0:
            log = {"train/loss": total, "train/grad_norm": gn, "train/step": rollout_id}
            logger.info(f"step {rollout_id}: {log}")
            logging_utils.log(self.args, log, step_key="train/step")

    def save_model(self, rollout_id, force_sync=False):
        if dist.get_rank() == 0:
            os.makedirs(self.args.save, exist_ok=True)
            torch.save(
                {"model": self.model.state_dict()}, os.path.join(self.args.save, f"iter_{rollout_id:07d}.pt")
            )
            with open(os.path.join(self.args.save, "latest_checkpointed_iteration.txt"), "w") as f:
                f.write(str(rollout_id))
        dist.barrier(group=get_gloo_group())

    @torch.no_grad()
    def _log_probs(self):
        """Of fixed tokens but the first, under the weights that are sent next."""
        ids = torch.tensor([token_ids(self.hf_config.vocab_size)])
        rows = torch.log_softmax(self.model(ids).logits[0, :-1].float(), -1)
        return rows.gather(1, ids[0, 1:, None])[:, 0].tolist()

    def update_weights(self):
        rank = dist.get_rank()
        if self.args.use_fault_tolerance:
            if rank == 0:
                ray.get(self.rollout_manager.recover_updatable_engines.remote())
            dist.barrier(group=get_gloo_group())
        engines, lock, num_new, counts, offsets, parallel = ray.get(
            self.rollout_manager.get_updatable_engines_and_lock.remote()
        )
        if not engines:
            return
        emit(
            who=f"trainer[{rank}]",
            method="update_weights.begin",
            num_new_engines=num_new,
            engine_gpu_counts=counts,
            next_version=self.weight_updater.weight_version + 1,
            log_probs=self._log_probs(),
        )
        if num_new > 0:
            self.weight_updater.connect_rollout_engines(
                engines,
                lock,
                engine_gpu_counts=counts,
                engine_gpu_offsets=offsets,
                engine_parallel_configs=parallel,
            )
            dist.barrier(group=get_gloo_group())
            if rank == 0:
                ray.get(self.rollout_manager.clear_updatable_num_new_engines.remote())
        self.weight_updater.update_weights()
        self.view.overwrite()
        emit(
            who=f"trainer[{rank}]",
            method="update_weights.end",
            weight_version=self.weight_updater.weight_version,
            param_sum=float(sum(p.double().sum() for p in self.model.parameters())),
            # Of what is sent: in the model's own dtype, so that a version's sum is this one.
            sent_sum=float(sum(p.to(self.view.dtype).double().sum() for p in self.model.parameters())),
        )
