"""Reward functions that behave, and such that do not. They run in grading workers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from live_eval.evaluation.rewards import RewardSample


def equal(sample: RewardSample) -> float:
    return float(sample.response == sample.label)


async def equal_async(sample: RewardSample) -> float:
    await asyncio.sleep(0)
    return float(sample.response == sample.label)


def uses_alarm(sample: RewardSample) -> float:
    """As math_verify does: SIGALRM as a time-out, which works in a main thread only."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(5)
    result = float(sample.response == sample.label)
    signal.alarm(0)
    return result


def leaves_alarm(sample: RewardSample) -> float:
    """Leaves an alarm behind that would end the process in the next sample."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    return 1.0


def slow(sample: RewardSample) -> float:
    time.sleep(0.15)
    return 1.0


def faulty(sample: RewardSample) -> Any:
    """Does what the label says."""
    match sample.label:
        case "loop":
            while True:
                pass
        case "raise":
            raise KeyError("no such thing")
        case "exit":
            os._exit(3)
        case "sys_exit":
            sys.exit(4)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "none":
            return None
        case "text":
            return "1.0"
        case "nan":
            return float("nan")
        case "list":
            return [1.0]
    return 1.0


def forks(sample: RewardSample) -> float:
    """Leaves a process that comes back too, or one that lives on in a session of its own."""
    child = os.fork()
    if child == 0 and sample.label == "loop":
        os.setsid()
        time.sleep(60)
        os._exit(0)
    if sample.label == "loop":
        Path(sample.fields["child"]).write_text(str(child), encoding="ascii")
        time.sleep(60)
    return float(sample.row_id)


def forks_again(sample: RewardSample) -> float:
    """1.0 if what a forked process opens is still open in one that it forks itself."""
    child = os.fork()
    if child == 0:
        ends = os.pipe()  # these have the numbers that became free first
        grandchild = os.fork()
        if grandchild == 0:
            try:
                for end in ends:
                    os.fstat(end)
            except OSError:
                os._exit(1)
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    return float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0)


def oom_score(sample: RewardSample) -> float:
    return float(Path("/proc/self/oom_score_adj").read_text(encoding="ascii"))


def returns_label(sample: RewardSample) -> Any:
    return sample.label


def numpy_number(sample: RewardSample) -> Any:
    return np.float32(0.5)


def prints_and_reads(sample: RewardSample) -> float:
    """Prints what looks like an answer, reads standard input, and starts a child that prints."""
    print('{"value": 0.0}', flush=True)
    subprocess.run(["echo", '{"value": 0.0}'], check=True)
    return float(sys.stdin.read() == "")


def meets(sample: RewardSample) -> float:
    """Returns once `fields["others"]` processes are in here at the same time."""
    place = Path(sample.fields["place"])
    (place / f"{os.getpid()}").touch()
    while len(list(place.iterdir())) < sample.fields["others"]:
        time.sleep(0.005)
    return 1.0


def tells_pid(sample: RewardSample) -> float:
    return float(os.getpid())


async def by_field(sample: RewardSample) -> dict[str, Any]:
    return {"acc": float(sample.response == sample.label), "len": sample.num_tokens, "ok": np.bool_(True)}


not_a_function = 3


def batch(samples: list[RewardSample]) -> list[Any]:
    """Rewards of many; a label that is no number is what it gives back."""
    if any(sample.label == "raise" for sample in samples):
        raise KeyError("no such thing")
    if any(sample.label == "huge" for sample in samples):
        return [10**400 if sample.label == "huge" else 1.0 for sample in samples]
    return [sample.label if isinstance(sample.label, str) else float(len(samples)) for sample in samples]


async def batch_async(samples: list[RewardSample]) -> Any:
    await asyncio.sleep(0)
    return np.array([float(sample.response == sample.label) for sample in samples])


def one_too_few(samples: list[RewardSample]) -> list[float]:
    return [1.0] * (len(samples) - 1)


async def together(sample: RewardSample) -> float:
    """How many are in here at the same time; faults as `faulty` has them."""
    global _num_together
    if sample.label == "loop":
        await asyncio.sleep(60)
    if sample.label == "raise":
        raise KeyError("no such thing")
    _num_together += 1
    await asyncio.sleep(0.2)
    return float(_num_together)


_num_together = 0


async def as_slime(args: Any, sample: Any, **kwargs: Any) -> float:
    """A custom reward function as slime calls it."""
    assert sample.response_length >= 0 and sample.index == sample.sample
    return float(sample.metadata["level"] == sample.label and args.reward_key is None)
