"""slime's real eval, reward and log functions in live-eval's worker process; the engines are stand-ins."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.slime_engines import FakeEngines
from fakes.slime_run import FULLY_ASYNC, LIVE, RUN

from live_eval.engines.requests import Forwarded
from live_eval.evaluation.datasets import EvalSet, EvalSetConfig, load_eval_sets
from live_eval.evaluation.job import JobSpec, RunLimits
from live_eval.evaluation.sample_log import read_samples
from live_eval.reasons import EndReason, JobStatus
from live_eval.targets import PolicyTarget
from slime_patch.slime_eval.run import SlimeRun, SlimeRuns

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(600)
STANDINS = (RUN / "standin", ROOT / "live_eval" / "engines" / "embedded" / "stubs")
PROGRAM = """
import sys
from pathlib import Path
from slime.utils.arguments import parse_args
from slime_patch import hooks
from slime_patch.settings import settings_of
from slime_patch.slime_eval.plan import slime_eval_plan
args = parse_args(add_custom_arguments=hooks.add_arguments)
settings = settings_of(args, sys.argv[1:])
slime_eval_plan(args, settings.engines).write(Path("plan.json"))
"""
FLAGS = """
--num-layers 2 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --num-query-groups 2
--kv-channels 16 --norm-epsilon 1e-6 --vocab-size 512 --swiglu --add-qkv-bias --rotary-base 10000
--untie-embeddings-and-output-weights --actor-num-nodes 1 --actor-num-gpus-per-node 1
--rollout-num-gpus 8 --rollout-num-gpus-per-engine 1 --num-gpus-per-node 8 --num-rollout 3
--rollout-batch-size 2 --n-samples-per-prompt 2 --global-batch-size 4 --sglang-device cpu
--custom-rm-path slime_cpu.reward.rm --log-passrate --eval-runner slime --eval-concurrency 3
"""


@dataclass(kw_only=True)
class Engines(FakeEngines):
    """Answers with tokens and log-probs, as slime asks for them."""

    async def _answer(self, body: bytes) -> Forwarded | None:
        await asyncio.sleep(0.01)
        if self.hold:
            await self._aborted.wait()
            return None
        request = json.loads(body)
        assert request["input_ids"] and request["return_logprob"]
        assert request["sampling_params"]["max_new_tokens"] == 8
        answer = {
            "text": f"answer {len(self.asked)}",
            "meta_info": {
                "weight_version": self.label,
                "finish_reason": {"type": "length" if len(self.asked) % 2 else "stop"},
                "prompt_tokens": 3,
                "completion_tokens": 2,
                "cached_tokens": 0,
                "output_token_logprobs": [[-0.1, 65, None], [-0.2, 66, None]],
            },
        }
        return Forwarded(
            status=200, content_type="application/json", body=json.dumps(answer).encode(), engine="eval-0"
        )


@pytest.fixture
def command(slime_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The worker's command line in slime's environment; the plan is beside."""
    setup = Path(os.environ["SETUP_DIR"]).absolute()
    python = str(setup / "venv" / "bin" / "python")
    changes = {
        "PYTHONPATH": os.pathsep.join(map(str, (slime_dir, *STANDINS, ROOT))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "SGLANG_USE_CPU_ENGINE": "1",
        "SLIME_CPU": "1",
        "SLIME_ACCELERATOR": "cpu",
        "TOKENIZERS_PARALLELISM": "false",
    }
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    words = [
        *FLAGS.split(),
        "--hf-checkpoint",
        str(setup / "tiny"),
        *LIVE,
        "--rollout-function-path",
        FULLY_ASYNC,
    ]
    done = subprocess.run(
        [python, "-c", PROGRAM, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [python, "-m", "slime_patch.slime_eval.worker"]


@pytest.fixture
def eval_set() -> EvalSet:
    config = EvalSetConfig(name="toy", path=RUN / "data" / "eval.jsonl", n=2, label_key="label")
    return load_eval_sets([config])["toy"]


def run(runs: SlimeRuns, eval_set: EvalSet, engines: Engines, folder: Path) -> SlimeRun:
    target = PolicyTarget(policy_version=7, weight_version=7, rollout_id=5, train_step=6)
    spec = JobSpec(job_id="v7/toy", target=target, label="7", samples_path=folder / "samples" / "toy.jsonl")
    return runs.make(
        spec, eval_set, engines, grader=None, limits=RunLimits(timeout_s=120), on_progress=lambda _: None
    )  # type: ignore[arg-type]


async def test_the_stock_eval_function_scores_and_its_log_function_makes_the_row(
    command: list[str], eval_set: EvalSet, tmp_path: Path
) -> None:
    engines = Engines()
    async with SlimeRuns(tmp_path / "plan.json", command=command) as runs:
        detail = await run(runs, eval_set, engines, tmp_path).result()
        again = await run(runs, eval_set, Engines(), tmp_path / "again").result()
    assert (detail.status, detail.detail) == (JobStatus.SUCCEEDED, "")
    assert (detail.counts.n_expected, detail.counts.n_scored) == (8, 8)
    assert detail.metrics["slime/eval/toy"] == pytest.approx(detail.score)
    assert {
        "slime/eval/toy/response_len/mean",
        "slime/eval/toy-truncated_ratio",
        "slime/eval/toy-pass@1",
    } <= set(detail.metrics)
    assert engines.max_in_flight == 3  # --eval-concurrency, where the rollout engines have 8 x 512
    samples = read_samples(Path(detail.samples_path))
    assert len({(sample.row_id, sample.sample) for sample in samples}) == 8
    assert {sample.engine_label for sample in samples} == {"7"}
    assert {sample.finish_reason for sample in samples} == {"stop", "length"}
    assert sum(sample.reward or 0.0 for sample in samples) / 8 == pytest.approx(detail.score)
    assert again.status is JobStatus.SUCCEEDED  # from slime's own cache of the data set


async def test_a_cancel_ends_it_within_a_second(
    command: list[str], eval_set: EvalSet, tmp_path: Path
) -> None:
    engines = Engines(hold=True)
    async with SlimeRuns(tmp_path / "plan.json", command=command) as runs:
        job = run(runs, eval_set, engines, tmp_path)
        task = asyncio.create_task(job.result())
        await engines.two_asked.wait()
        began = time.monotonic()
        job.cancel(EndReason.NEWER_VERSION)
        detail = await task
        assert time.monotonic() - began < 1.0
    assert (detail.status, detail.score) == (JobStatus.CANCELLED, None)
    assert engines.events == ["abort"]
