"""The part of a service that ends jobs and tells W&B, as a process that a test can kill.

    python -m fakes.result_service DIR FIRST LAST [hold]

Opens DIR's ledger, starts the W&B sink, ends one job for each policy version FIRST..LAST on two
datasets (jobs that are there already are left alone), prints "ended" when they are durable, "fed"
when the sink has taken all, and with `hold` waits to be killed, else closes.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from live_eval.results.ledger import Ledger
from live_eval.results.sinks import SinkPump
from live_eval.results.wandb_sink import WandbConfig, WandbSink, wandb_run_id
from live_eval.targets import PolicyTarget, job_id

DATASETS = ["rev", "add"]


def main(root: Path, first: int, last: int, *, hold: bool) -> int:
    ledger = Ledger.open(root / "ledger.sqlite", run_id="run")
    sink = WandbSink(
        WandbConfig(dir=root, finish_timeout_s=30.0), run_id=wandb_run_id(ledger), datasets=DATASETS
    )
    pump = SinkPump(ledger, [sink], retry_s=0.1)
    pump.start()
    for version in range(first, last + 1):
        target = PolicyTarget(policy_version=version, train_step=10 * version)
        if not ledger.has_job(job_id(target, "rev")):
            ledger.create_jobs(target, DATASETS, now=1.0)
        for row in ledger.unfinished():
            ledger.start(row.job_id, now=2.0)
            result = ledger.outcome(row.job_id, status="succeeded", reason="completed", now=3.0)
            ledger.finish(msgspec.structs.replace(result, score=version / 1000, n_expected=4, n_scored=4))
            pump.wake()
    print("ended", flush=True)
    left = pump.drain(60.0)
    print("fed" if not left else f"left {left}", flush=True)
    if hold:
        time.sleep(600)
    left = pump.close(30.0)
    ledger.close()
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), hold="hold" in sys.argv))
