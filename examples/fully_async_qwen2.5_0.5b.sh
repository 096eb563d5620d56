#!/usr/bin/env bash
# slime's fully-async example (examples/fully_async/run-qwen2.5-0.5B-fully_async.sh) with live eval.
# 4 GPUs: 1 trains, 2 make rollouts, 1 evaluates. What differs from slime's own script is in EVAL_ARGS and in
# the last command, which starts train_async.py through slime_patch.run.
set -euo pipefail

SLIME_DIR="${SLIME_DIR:?the checkout of slime}"
MEGATRON_DIR="${MEGATRON_DIR:?the checkout of Megatron-LM}"
MODEL_DIR="${MODEL_DIR:?Qwen2.5-0.5B-Instruct as a Hugging Face checkpoint, with MODEL_DIR_torch_dist beside it}"
DATA_PATH="${DATA_PATH:?dapo-math-17k.jsonl}"
EVAL_DATA_PATH="${EVAL_DATA_PATH:?aime-2024.jsonl}"
SAVE_DIR="${SAVE_DIR:?a directory for checkpoints; results go to SAVE_DIR/live_eval}"
RAY_DASHBOARD="${RAY_DASHBOARD:-http://127.0.0.1:8265}"

source "${SLIME_DIR}/scripts/models/qwen2.5-0.5B.sh" # MODEL_ARGS

EVAL_ARGS=(
   --eval-mode latest-synced
   --eval-on-update finish          # newer weights wait until the running eval is complete
   --eval-num-gpus 1
   --eval-interval 5                # every fifth rollout's weights are due, the first and the last ones too
   --eval-prompt-data aime "${EVAL_DATA_PATH}"
   --n-samples-per-eval-prompt 4
   --eval-max-response-len 2048
   --eval-temperature 0.6
)

CKPT_ARGS=(
   --hf-checkpoint "${MODEL_DIR}"
   --ref-load "${MODEL_DIR}_torch_dist"
   --save "${SAVE_DIR}"
   --save-interval 50
)

ROLLOUT_ARGS=(
   --rollout-function-path slime.rollout.fully_async_rollout.generate_rollout_fully_async
   --prompt-data "${DATA_PATH}"
   --input-key prompt
   --label-key label
   --apply-chat-template
   --rollout-shuffle
   --rm-type deepscaler
   --num-rollout 100
   --rollout-batch-size 8
   --n-samples-per-prompt 4
   --rollout-max-response-len 1024
   --rollout-temperature 1
   --global-batch-size 32
   --balance-data
)

TRAIN_ARGS=(
   --actor-num-nodes 1
   --actor-num-gpus-per-node 1
   --rollout-num-gpus 2             # not 3: the eval engine's GPU is not slime's
   --rollout-num-gpus-per-engine 1
   --sglang-mem-fraction-static 0.55
   --tensor-model-parallel-size 1
   --sequence-parallel
   --pipeline-model-parallel-size 1
   --context-parallel-size 1
   --expert-model-parallel-size 1
   --expert-tensor-parallel-size 1
   --use-dynamic-batch-size
   --max-tokens-per-gpu 4096
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
   --attention-dropout 0.0
   --hidden-dropout 0.0
   --accumulate-allreduce-grads-in-fp32
   --attention-softmax-in-fp32
   --attention-backend flash
)

# Ray must be running with at least 4 GPUs: ray start --head --num-gpus 4
ray job submit --address "${RAY_DASHBOARD}" \
   --runtime-env-json "{\"env_vars\": {\"PYTHONPATH\": \"${MEGATRON_DIR}:${SLIME_DIR}\", \"CUDA_DEVICE_MAX_CONNECTIONS\": \"1\"}}" \
   -- python3 -m slime_patch.run train_async.py \
   "${MODEL_ARGS[@]}" "${CKPT_ARGS[@]}" "${ROLLOUT_ARGS[@]}" "${TRAIN_ARGS[@]}" "${EVAL_ARGS[@]}"
