"""One pipeline rank of a trainer, as a process: the model of fakes.moe_model, tapped, over transport disk.

    python pipeline_rank.py MAILBOX RANK

Reads `sync VERSION` or `skip VERSION` (an update that is not wanted here) from stdin and answers `done`.
The weights are overwritten in place as soon as an update is over.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from fakes.moe_model import chunks
from fakes.slime_standins import NamedTensors, UpdateWeightFromDistributed
from fakes.sync import content

from live_eval.mailbox import Mailbox
from live_eval.publisher.mail import MailSender
from live_eval.publisher.ray_ref import RayPublisherConfig, RayRefPublisher
from slime_patch.tap import SyncNote, WeightTap

SOURCES = ("pp_0", "pp_1")
LIFE = "life-1"


class Trainer:
    """This rank's weights and its updater."""

    def __init__(self, mailbox: Path, rank: int) -> None:
        self._rank = rank
        self._parameters = {
            meta.name: torch.empty(meta.shape, dtype=torch.bfloat16) for part in chunks(rank) for meta in part
        }
        config = RayPublisherConfig(
            run_id="run",
            slot_bytes=1 << 16,
            source=SOURCES[rank],
            sources=SOURCES,
            incarnation_id=LIFE,
            bucket_bytes=256,
        )
        sender = MailSender(Mailbox(mailbox), life=LIFE, source=SOURCES[rank], sync_timeout_s=30.0)
        publisher = RayRefPublisher(None, config, sender=sender)
        self._updater = UpdateWeightFromDistributed(self._chunks)
        self._tap = WeightTap(self._updater, lambda _: publisher, slot_bytes=1 << 16)

    def _chunks(self) -> list[NamedTensors]:
        return [[(meta.name, self._parameters[meta.name]) for meta in part] for part in chunks(self._rank)]

    def update(self, version: int, *, wanted: bool) -> None:
        """Train, update, and train on."""
        for part in chunks(self._rank):
            for meta in part:
                tensor = self._parameters[meta.name]
                trained = torch.from_numpy(content(meta, version)).view(torch.bfloat16)
                tensor.copy_(trained.view(tensor.shape))
        self._tap.note = SyncNote(rollout_id=version - 1, train_step=version, wanted=wanted)
        self._updater.update_weights()
        for tensor in self._parameters.values():
            tensor.fill_(0)

    def close(self) -> None:
        """Post what is queued."""
        self._tap.close(30.0)


def main() -> None:
    """Do as told until stdin ends."""
    trainer = Trainer(Path(sys.argv[1]), int(sys.argv[2]))
    for line in sys.stdin:
        command, version = line.split()
        trainer.update(int(version), wanted=command == "sync")
        print("done", flush=True)
    trainer.close()


if __name__ == "__main__":
    main()
