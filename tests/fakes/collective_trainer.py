"""A trainer process that syncs once, begins a second sync and then stops in the middle of it.

    python collective_trainer.py SOCKET GROUP_NAME INCARNATION_ID

Prints `midway` when one bucket of weight version 2 is sent, and sleeps.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fakes.sync import MODEL
from fakes.weights import weights

from live_eval.publisher.collective import CollectiveConfig, CollectivePublisher
from live_eval.publisher.engines import FacadeEngine


def main() -> None:
    """Sync, then half a sync."""
    socket, group_name, life = sys.argv[1:4]
    publisher = CollectivePublisher(
        CollectiveConfig(run_id="run", group_name=group_name, incarnation_id=life),
        receiver=FacadeEngine(Path(socket)),
    )
    publisher.begin(1)
    publisher.put_bucket(weights(1))
    publisher.commit()
    publisher.begin(2)
    publisher.put_bucket(weights(2, MODEL[:2]))
    print("midway", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
