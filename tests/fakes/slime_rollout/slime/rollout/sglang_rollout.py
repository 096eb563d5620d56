"""Eval functions in the manner of slime's: they ask the router of their arguments and grade the answers."""

import asyncio
import os
import threading
import time

from slime.utils.http_utils import post
from slime.utils.types import Sample

ROWS = ["one", "two", "three"]


async def _sample(args, index, prompt):
    url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
    answer = await post(url, {"text": prompt, "sampling_params": {"max_new_tokens": 4}})
    meta = answer["meta_info"]
    ended = Sample.Status.TRUNCATED if meta["finish_reason"]["type"] == "length" else Sample.Status.COMPLETED
    return Sample(
        index=index,
        prompt=prompt,
        response=answer["text"],
        response_length=meta["completion_tokens"],
        label="yes",
        reward=1.0 if "one" in prompt else 0.0,
        status=ended,
        weight_versions=[meta["weight_version"]],
    )


async def _all(args):
    (dataset,) = args.eval_datasets
    n = dataset.n_samples_per_eval_prompt
    samples = await asyncio.gather(*(_sample(args, i, ROWS[i // n]) for i in range(len(ROWS) * n)))
    rewards = [sample.reward for sample in samples]
    return {dataset.name: {"rewards": rewards, "truncated": [False] * len(rewards), "samples": samples}}


LOOP = asyncio.new_event_loop()


def _run(coroutine):
    """As slime: one loop for the life of the process, in a thread of its own."""
    if not LOOP.is_running():
        threading.Thread(target=LOOP.run_forever, daemon=True).start()
    return asyncio.run_coroutine_threadsafe(coroutine, LOOP).result()


def generate_rollout(args, rollout_id, data_source, evaluation=False):
    print("a word of slime's own")
    return _run(_all(args))


def raises(args, rollout_id, data_source, evaluation=False):
    raise ValueError("the user's own fault")


def dies(args, rollout_id, data_source, evaluation=False):
    os._exit(7)


def hangs(args, rollout_id, data_source, evaluation=False):
    time.sleep(3600)


def only_rewards(args, rollout_id, data_source, evaluation=False):
    (dataset,) = args.eval_datasets
    return {dataset.name: {"rewards": [1.0, None, float("nan")]}}


def leaves_out(args, rollout_id, data_source, evaluation=False):
    """One sample was aborted, and one is not returned."""
    (data,) = (returned := _run(_all(args))).values()
    data["samples"][0].status = Sample.Status.ABORTED
    del data["rewards"][-1], data["samples"][-1]
    return returned


def log_itself(rollout_id, args, data, extra_metrics):
    import wandb

    wandb.log({"eval/mine": 3, "eval/step": rollout_id, "eval/table": object()})
    return True
