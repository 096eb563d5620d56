#!/usr/bin/env bash
# slime's Qwen3-30B-A3B script (scripts/run-qwen3-30B-A3B.sh), one step ahead instead of colocated, with live eval.
# 2 nodes of 8 GPUs: 8 train, 4 make rollouts, 4 evaluate. A version is 61 GB, so the store is on a local disk of
# the eval engines' node and bounded, and only due versions are copied.
set -euo pipefail

SLIME_DIR="${SLIME_DIR:?the checkout of slime}"
MEGATRON_DIR="${MEGATRON_DIR:?the checkout of Megatron-LM}"
MODEL_DIR="${MODEL_DIR:?Qwen3-30B-A3B as a Hugging Face checkpoint, with MODEL_DIR_torch_dist beside it}"
DATA_PATH="${DATA_PATH:?dapo-math-17k.jsonl}"
EVAL_DATA_PATH="${EVAL_DATA_PATH:?aime-2024.jsonl}"
SAVE_DIR="${SAVE_DIR:?a directory for checkpoints, seen by all nodes}"
STORE_DIR="${STORE_DIR:?a directory on a local disk with 400 GB free, on each node that may evaluate}"
RAY_DASHBOARD="${RAY_DASHBOARD:-http://127.0.0.1:8265}"

source "${SLIME_DIR}/scripts/models/qwen3-30B-A3B.sh" # MODEL_ARGS

EVAL_ARGS=(
   --eval-mode latest-synced
   --eval-on-update cancel          # the newest weights are evaluated at once, but
   --eval-max-consecutive-cancels 2 # after two cancelled evals the next one completes
   --eval-num-gpus 4
   --eval-num-gpus-per-engine 4     # as the rollout engines, so that their settings fit
   --eval-concurrency 256
   --eval-interval 20
   --eval-prompt-data aime "${EVAL_DATA_PATH}"
   --n-samples-per-eval-prompt 16
   --eval-max-response-len 16384
   --eval-top-p 1
   --eval-store-dir "${STORE_DIR}"
   --eval-store-max-gb 380          # six versions: one arrives, one is evaluated, two wait, two are kept
   --eval-keep-versions 2
   --eval-sync-deadline-s 10
   --eval-timeout-s 5400
   --eval-on-failure alert
)

CKPT_ARGS=(
   --hf-checkpoint "${MODEL_DIR}"
   --ref-load "${MODEL_DIR}_torch_dist"
   --load "${SAVE_DIR}"
   --save "${SAVE_DIR}"
   --save-interval 20
)

ROLLOUT_ARGS=(
   --prompt-data "${DATA_PATH}"
   --input-key prompt
   --label-key label
   --apply-chat-template
   --rollout-shuffle
   --rm-type deepscaler
   --num-rollout 3000
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
   --rollout-temperature 1
   --global-batch-size 256
   --balance-data
)

TRAIN_ARGS=(
   --actor-num-nodes 1
   --actor-num-gpus-per-node 8
   --rollout-num-gpus 4             # of the second node; its other four evaluate
   --rollout-num-gpus-per-engine 4
   --sglang-mem-fraction-static 0.7
   --tensor-model-parallel-size 4
   --sequence-parallel
   --pipeline-model-parallel-size 1
   --context-parallel-size 1
   --expert-model-parallel-size 8
   --expert-tensor-parallel-size 1
   --recompute-granularity full
   --recompute-method uniform
   --recompute-num-layers 1
   --use-dynamic-batch-size
   --max-tokens-per-gpu 20480
   --advantage-estimator grpo
   --use-kl-loss
   --kl-loss-coef 0.00
   --kl-loss-type low_var_kl
   --entropy-coef 0.00
   --eps-clip 0.2
   --eps-clip-high 0.28
   --optimizer adam
   --lr 1e-6
   --lr-decay-style constant
   --weight-decay 0.1
   --adam-beta1 0.9
   --adam-beta2 0.98
   --optimizer-cpu-offload
   --overlap-cpu-optimizer-d2h-h2d
   --use-precision-aware-optimizer
   --attention-dropout 0.0
   --hidden-dropout 0.0
   --accumulate-allreduce-grads-in-fp32
   --attention-softmax-in-fp32
   --attention-backend flash
)

WANDB_ARGS=()
if [ -n "${WANDB_PROJECT:-}" ]; then
   WANDB_ARGS=(--use-wandb --wandb-project "${WANDB_PROJECT}" --wandb-group qwen3-30B-A3B)
fi

# Ray must be running on both nodes: ray start --head --num-gpus 8, and on the second ray start --address ... --num-gpus 8
ray job submit --address "${RAY_DASHBOARD}" \
   --runtime-env-json "{\"env_vars\": {\"PYTHONPATH\": \"${MEGATRON_DIR}:${SLIME_DIR}\", \"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\"}}" \
   -- python3 -m slime_patch.run train_async.py \
   "${MODEL_ARGS[@]}" "${CKPT_ARGS[@]}" "${ROLLOUT_ARGS[@]}" "${TRAIN_ARGS[@]}" "${EVAL_ARGS[@]}" "${WANDB_ARGS[@]}"
