"""A member of a group that joins the way SGLang does: torch's rendezvous and its own group helper.

    python torch_peer.py PORT RANK WORLD_SIZE GROUP_NAME [DTYPE NUM_ELEMENTS]...

Prints one JSON list of what it received, a list of numbers for each tensor.
"""

from __future__ import annotations

import json
import sys
from datetime import timedelta


def main() -> None:
    """Join, receive each tensor, print, leave."""
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import (
        Backend,
        PrefixStore,  # pyright: ignore[reportPrivateImportUsage]
        _new_process_group_helper,
        _world,
        rendezvous,
    )

    port, rank, world_size, name = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    timeout = timedelta(seconds=60)
    store, rank, world_size = next(rendezvous(f"tcp://127.0.0.1:{port}", rank, world_size, timeout=timeout))
    store.set_timeout(timeout)
    group, _ = _new_process_group_helper(
        world_size,
        rank,
        [],
        Backend("gloo"),
        PrefixStore(name, store),
        group_name=name,
        backend_options=None,
        timeout=timeout,
    )
    _world.pg_group_ranks[group] = {i: i for i in range(world_size)}
    received = []
    for dtype, size in zip(sys.argv[5::2], sys.argv[6::2], strict=True):
        tensor = torch.zeros(int(size), dtype=getattr(torch, dtype))
        dist.broadcast(tensor, src=0, group=group)
        received.append(tensor.double().tolist())
    print(json.dumps(received), flush=True)


if __name__ == "__main__":
    main()
