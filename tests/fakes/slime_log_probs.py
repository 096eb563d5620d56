"""Whether an eval engine held what slime's trainer had: both computed log-probs of the same tokens.

The driver's trainer writes its own log-probs of the fingerprint's tokens down before each update; what the
engine answered on each version is in the ledger.
"""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

from live_eval.engines.fingerprint import Vector, distance

if TYPE_CHECKING:
    from fakes.slime_run import SlimeRun

NOISE = 0.1
"""Nats: the trainer computes in float32, the engine in bfloat16."""
ANOTHER = 0.3
"""Nats: so far apart two versions are not the same. A step whose rewards are all equal moves less."""


def engine_log_probs(run: SlimeRun) -> dict[str, Vector]:
    """Version digest -> what the eval engine answered on that version, from the ledger."""
    with sqlite3.connect(f"file:{run.run_dir.ledger}?mode=ro", uri=True) as ledger:
        rows = ledger.execute("SELECT key, value FROM kv WHERE key LIKE 'fingerprint/%'").fetchall()
    return {key.split("/")[1]: tuple(json.loads(value)) for key, value in rows}


def check_log_probs(run: SlimeRun) -> int:
    """The engine agrees with the trainer on the labelled version, and on no other that it can be told from.

    How many versions were checked; at least one was told from another.
    """
    trainer = {
        call["next_version"]: tuple(call["log_probs"])
        for call in run.calls("update_weights.begin")
        if call["who"] == "trainer[0]"
    }
    engine = engine_log_probs(run)
    scored = [each for each in run.results().values() if each.status == "succeeded"]
    told_apart = 0
    for result in scored:
        version = result.policy_version
        assert version is not None
        found = engine[result.weight_digest]
        assert distance(found, trainer[version]) < NOISE, version
        for other, log_probs in trainer.items():
            if distance(trainer[version], log_probs) > ANOTHER + NOISE:
                assert distance(found, log_probs) > ANOTHER, (version, other)
                told_apart += 1
    assert told_apart, trainer
    return len(scored)
