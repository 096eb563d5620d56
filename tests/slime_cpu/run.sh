#!/usr/bin/env bash
# Run slime's unmodified train.py or train_async.py on a CPU.   usage: run.sh [train.py|train_async.py] [slime's arguments]
# LIVE=1 starts it through slime_patch.run. See README.md for the environment variables.
set -u
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"; REPO="$(cd "$HERE/../.." && pwd)"
SLIME_DIR="${SLIME_DIR:?set SLIME_DIR to a checkout of slime (it is never written to)}"
SETUP_DIR="${SETUP_DIR:?set SETUP_DIR to the folder that setup.sh made}"
VENV="$SETUP_DIR/venv"; MODEL_DIR="${MODEL_DIR:-$SETUP_DIR/tiny}"
OUT_DIR="${OUT_DIR:-$SETUP_DIR/out/$(date +%H%M%S)}"
NUM_ROLLOUT="${NUM_ROLLOUT:-3}"; TRAIN_GPUS="${TRAIN_GPUS:-1}"; ROLLOUT_GPUS="${ROLLOUT_GPUS:-1}"
RAY_PORT="${RAY_PORT:-$(free_port)}"; LIMIT="${LIMIT:-420}"
EXTRA_PYTHONPATH="${EXTRA_PYTHONPATH:-}"
SCRIPT="${1:-train_async.py}"; shift || true
case "$SCRIPT" in /*) ;; *) SCRIPT="$SLIME_DIR/$SCRIPT";; esac
mkdir -p "$OUT_DIR"; OUT_DIR="$(cd "$OUT_DIR" && pwd)"; : > "$OUT_DIR/calls.jsonl"; : > "$OUT_DIR/ray.log"

export SLIME_CPU=1 SLIME_ACCELERATOR=cpu SLIME_CPU_LOG="$OUT_DIR" SLIME_CPU_RUN_ID="${SLIME_CPU_RUN_ID:-$$-$RANDOM}" SLIME_HOST_IP=127.0.0.1
export SGLANG_USE_CPU_ENGINE=1 TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1
export WANDB_MODE="${WANDB_MODE:-offline}" GLOO_SOCKET_IFNAME=lo
export PYTHONPATH="$HERE/standin:${EXTRA_PYTHONPATH:+$EXTRA_PYTHONPATH:}$SLIME_DIR:$REPO:$REPO/live_eval/engines/embedded/stubs"
export RAY_ADDRESS=127.0.0.1:$RAY_PORT RAY_DISABLE_IMPORT_WARNING=1 RAY_DEDUP_LOGS=0 RAY_USAGE_STATS_ENABLED=0
export RAY_memory_monitor_refresh_ms=0 PATH="$VENV/bin:$PATH"
unset CUDA_VISIBLE_DEVICES

# Our own cluster gets its own fresh token (never the one in ~/.ray), so a run can neither join nor be joined by another.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN="$(python -c 'import secrets; print(secrets.token_hex(32))')"

mine() { # pids of processes this run started: they hold files of our private ray temp dir open, or carry our run tag
  python - "$RAYTMP" "$SLIME_CPU_RUN_ID" <<'PY' 2>/dev/null
import os, sys
tmp, tag = sys.argv[1], ("SLIME_CPU_RUN_ID=" + sys.argv[2]).encode()
skip = {os.getpid(), os.getppid(), os.getpgid(0)}
for p in filter(str.isdigit, os.listdir("/proc")):
    try:
        hit = tag in open(f"/proc/{p}/environ", "rb").read().split(b"\0")
        hit = hit or any(os.readlink(f"/proc/{p}/fd/{f}").startswith(tmp + "/") for f in os.listdir(f"/proc/{p}/fd"))
    except OSError:
        continue
    if hit and int(p) not in skip and open(f"/proc/{p}/comm").read().strip() != "bash":
        print(p)
PY
}
cleanup() {
  local pid
  for pid in $(mine); do kill -TERM "$pid" 2>/dev/null; done
  sleep 3
  for pid in $(mine); do kill -KILL "$pid" 2>/dev/null; done
  rm -rf "$RAYTMP"
}
RAYTMP="$(mktemp -d "${TMPDIR:-/tmp}/scr.XXXX")"
trap cleanup EXIT

T0=$(date +%s)
python -m ray.scripts.scripts start --head --port "$RAY_PORT" --ray-client-server-port "$(free_port)" --node-ip-address 127.0.0.1 --num-gpus 8 --num-cpus 32 \
  --include-dashboard false --object-store-memory 300000000 --temp-dir "$RAYTMP" --disable-usage-stats --block > "$OUT_DIR/ray.log" 2>&1 &
for _ in $(seq 600); do grep -q "Ray runtime started" "$OUT_DIR/ray.log" && break; sleep 0.5; done
grep -q "Ray runtime started" "$OUT_DIR/ray.log" || { echo "Ray does not start, see $OUT_DIR/ray.log" >&2; exit 3; }
RAY_ADDRESS="$(grep -o "address='[^']*'" "$OUT_DIR/ray.log" | head -1 | cut -d"'" -f2)"; export RAY_ADDRESS
T1=$(date +%s)

cd "$OUT_DIR"
timeout "$LIMIT" python ${LIVE:+-m slime_patch.run} "$SCRIPT" \
  --hf-checkpoint "$MODEL_DIR" \
  --num-layers 2 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --num-query-groups 2 --kv-channels 16 \
  --norm-epsilon 1e-6 --rotary-base 10000 --untie-embeddings-and-output-weights --add-qkv-bias --vocab-size 512 --swiglu \
  --actor-num-nodes 1 --actor-num-gpus-per-node "$TRAIN_GPUS" --rollout-num-gpus "$ROLLOUT_GPUS" \
  --rollout-num-gpus-per-engine 1 --num-gpus-per-node 8 \
  --prompt-data "$HERE/data/train.jsonl" --input-key prompt --label-key label --rollout-shuffle \
  --custom-rm-path slime_cpu.reward.rm \
  --num-rollout "$NUM_ROLLOUT" --rollout-batch-size 2 --n-samples-per-prompt 2 --global-batch-size 4 --micro-batch-size 1 \
  --rollout-max-response-len 16 --rollout-temperature 1.0 --advantage-estimator grpo --lr 1e-2 \
  --sglang-device cpu --sglang-attention-backend torch_native --sglang-sampling-backend pytorch \
  --sglang-max-total-tokens 4096 --sglang-mem-fraction-static 0.1 --sglang-disable-overlap-schedule \
  --sglang-disable-cuda-graph --sglang-server-concurrency 4 \
  "$@" > "$OUT_DIR/driver.log" 2>&1
RC=$?
sleep 3
for pid in $(mine); do echo "$pid $(tr '\0' ' ' < "/proc/$pid/cmdline" 2>/dev/null)"; done > "$OUT_DIR/left.txt"
echo "rc=$RC ray_start=$((T1-T0))s driver=$(( $(date +%s)-T1 ))s out=$OUT_DIR"
exit $RC
