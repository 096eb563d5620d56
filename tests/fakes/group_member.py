"""A process that joins a group as live-eval does, and then does as it is told.

    python group_member.py PORT RANK WORLD_SIZE GROUP_NAME TIMEOUT_S receive SIZE... | join | sleep

`receive` takes float32 tensors of these sizes and prints them as JSON, or prints an error and
the seconds until it came; `sleep` joins and then does nothing.
"""

from __future__ import annotations

import json
import sys
import time

from live_eval.collective import join_group
from live_eval.errors import TransportError


def main() -> None:
    """Join and obey."""
    import torch

    port, rank, world_size, name, timeout_s, what = sys.argv[1:7]
    began = time.monotonic()
    try:
        group = join_group(
            backend="gloo",
            master_address="127.0.0.1",
            master_port=int(port),
            rank=int(rank),
            world_size=int(world_size),
            group_name=name,
            timeout_s=float(timeout_s),
        )
        print("joined", flush=True)
        if what == "sleep":
            time.sleep(600)
        tensors = [torch.zeros(int(size)) for size in sys.argv[7:]]
        group.broadcast(tensors, timeout_s=float(timeout_s))
        print(json.dumps([tensor.tolist() for tensor in tensors]), flush=True)
        group.leave()
    except TransportError as error:
        print(json.dumps({"error": str(error), "after_s": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main()
