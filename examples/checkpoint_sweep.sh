#!/usr/bin/env bash
# Evaluate checkpoints of an earlier training, in order, on one GPU, while a colocated training runs on two others.
# No weight update is listened to, so this goes with every way of training. Checkpoints are Hugging Face ones
# (safetensors); slime writes them with --save-hf, or tools/convert_torch_dist_to_hf.py makes them.
#   examples/checkpoint_sweep.sh CHECKPOINT [CHECKPOINT ...]
set -euo pipefail

SLIME_DIR="${SLIME_DIR:?the checkout of slime}"
MEGATRON_DIR="${MEGATRON_DIR:?the checkout of Megatron-LM}"
MODEL_DIR="${MODEL_DIR:?Qwen2.5-0.5B-Instruct as a Hugging Face checkpoint, with MODEL_DIR_torch_dist beside it}"
DATA_PATH="${DATA_PATH:?gsm8k train.parquet}"
EVAL_DATA_PATH="${EVAL_DATA_PATH:?gsm8k test.parquet}"
OUTPUT_DIR="${OUTPUT_DIR:?a directory for results: live-eval results OUTPUT_DIR}"
RAY_DASHBOARD="${RAY_DASHBOARD:-http://127.0.0.1:8265}"
[ $# -ge 1 ] || { echo "usage: $0 CHECKPOINT [CHECKPOINT ...]" >&2; exit 2; }

source "${SLIME_DIR}/scripts/models/qwen2.5-0.5B.sh" # MODEL_ARGS

EVAL_ARGS=(
   --eval-mode checkpoint
   --eval-checkpoint "$@"
   --eval-num-gpus 1
   --eval-output-dir "${OUTPUT_DIR}"
   --eval-prompt-data gsm8k "${EVAL_DATA_PATH}"
   --n-samples-per-eval-prompt 1
   --eval-max-response-len 1024
   --eval-top-k 1
)

CKPT_ARGS=(
   --hf-checkpoint "${MODEL_DIR}"
   --ref-load "${MODEL_DIR}_torch_dist"
)

ROLLOUT_ARGS=(
   --prompt-data "${DATA_PATH}"
   --input-key messages
   --label-key label
   --apply-chat-template
   --rollout-shuffle
   --rm-type math
   --num-rollout 100
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 1024
   --rollout-temperature 1
   --global-batch-size 256
)

TRAIN_ARGS=(
   --actor-num-nodes 1
   --actor-num-gpus-per-node 2
   --colocate
   --rollout-num-gpus-per-engine 1
   --sglang-mem-fraction-static 0.7
   --tensor-model-parallel-size 1
   --sequence-parallel
   --pipeline-model-parallel-size 1
   --context-parallel-size 1
   --use-dynamic-batch-size
   --max-tokens-per-gpu 9216
   --advantage-estimator grpo
   --use-kl-loss
   --kl-loss-coef 0.00
   --kl-loss-type low_var_kl
   --eps-clip 0.2
   --eps-clip-high 0.28
   --optimizer adam
   --lr 1e-6
   --lr-decay-style constant
   --weight-decay 0.1
   --adam-beta1 0.9
   --adam-beta2 0.98
   --attention-dropout 0.0
   --hidden-dropout 0.0
   --accumulate-allreduce-grads-in-fp32
   --attention-softmax-in-fp32
   --attention-backend flash
)

# Ray must be running with at least 3 GPUs: ray start --head --num-gpus 3
ray job submit --address "${RAY_DASHBOARD}" \
   --runtime-env-json "{\"env_vars\": {\"PYTHONPATH\": \"${MEGATRON_DIR}:${SLIME_DIR}\", \"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\"}}" \
   -- python3 -m slime_patch.run train.py \
   "${MODEL_ARGS[@]}" "${CKPT_ARGS[@]}" "${ROLLOUT_ARGS[@]}" "${TRAIN_ARGS[@]}" "${EVAL_ARGS[@]}"
