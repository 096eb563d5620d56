"""A service process for tests of who supervises it: it answers, dies, or ends, as its file says.

    python -m fakes.service_process PARENT_PID PLAN.json
    {"socket": ..., "lives": ["die", "serve"], "log": ...}

`die` ends with status 3 at once, `serve` answers until training has ended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from live_eval.channel import ChannelServer, Connection
from live_eval.processes import end_with_parent
from protocol.messages import (
    JobsAccepted,
    Message,
    ServiceStatus,
    StatusRequest,
    SubmitCheckpoint,
    TrainingEnded,
)


async def serve(socket: Path, log: Path) -> None:
    ended = asyncio.Event()

    async def handle(message: Message, connection: Connection) -> Message | None:
        if isinstance(message, StatusRequest):
            return ServiceStatus(state="serving", running=("v1/toy",))
        if isinstance(message, SubmitCheckpoint):
            with log.open("a") as file:
                file.write(message.path + "\n")
            return JobsAccepted(job_ids=("c1/toy",))
        if isinstance(message, TrainingEnded):
            ended.set()
        return None

    async with ChannelServer(socket, handle):
        await ended.wait()
        await asyncio.sleep(0.2)


def main(path: Path) -> int:
    end_with_parent()
    plan = json.loads(path.read_text())
    life = plan["lives"].pop(0)
    path.write_text(json.dumps(plan))
    if life == "die":
        return 3
    asyncio.run(serve(Path(plan["socket"]), Path(plan["log"])))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[2])))
