"""A trainer in the test's process: a real model, real optimizer steps, one sync a round.

It keeps what it sent, so that a checker can compare every version with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from fakes.tiny_model import VOCAB_SIZE

from live_eval.digests import tensor_digest, version_digest
from live_eval.publisher.base import SyncReport, bucketize, tensor_meta
from live_eval.subscriber.arrival import Arrived, unpack
from protocol.messages import BucketHeader, SourceDone, SyncAccepted, SyncBegin, SyncCommit, SyncOutcome
from protocol.payload import payload_layout

if TYPE_CHECKING:
    import numpy as np

    from live_eval.publisher.base import NamedTensor, Publisher
    from live_eval.store.written_shard import FileRange
    from live_eval.subscriber.receiver import Receiver

BUCKET_BYTES = 128 << 10
"""The tiny model is sent in several buckets, as large models are."""
STEPS_A_ROUND = 3


class JobTrainer:
    """Rounds of training steps, each followed by a sync."""

    def __init__(
        self, base: Path, make_publisher: Callable[[Sequence[NamedTensor]], Publisher], *, seed: int = 0
    ) -> None:
        """`make_publisher` is given the tensors that every sync will carry."""
        from transformers import AutoModelForCausalLM

        self.num_steps = 0
        self.reports: list[SyncReport] = []
        self.digests: dict[int, str] = {}
        """Weight version -> digest of what was sent."""
        self._model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=0.01)
        self._random = torch.Generator().manual_seed(seed)
        self._loss().backward()  # the first pass is slow; a round should not be
        self.publisher = make_publisher(self.named_tensors())

    def named_tensors(self) -> list[NamedTensor]:
        """The live parameters under their HF names."""
        return [(name, parameter.detach()) for name, parameter in self._model.named_parameters()]

    def round(self) -> SyncReport:
        """Some steps and a sync; the first round is only the push of what training starts from."""
        version = len(self.reports) + 1
        if version > 1:
            for _ in range(STEPS_A_ROUND):
                self._step()
        self.reports.append(self._sync(version))
        return self.reports[-1]

    def _step(self) -> None:
        self._optimizer.zero_grad()
        self._loss().backward()
        self._optimizer.step()
        self.num_steps += 1

    def _loss(self) -> torch.Tensor:
        ids = torch.randint(0, VOCAB_SIZE, (4, 16), generator=self._random)
        return self._model(input_ids=ids, labels=ids).loss

    def _sync(self, version: int) -> SyncReport:
        tensors = self.named_tensors()
        self.digests[version] = digest_of(tensors)
        self.publisher.begin(
            version,
            rollout_id=version - 2 if version > 1 else None,
            train_step=self.num_steps,
            num_bytes=sum(tensor.nbytes for _, tensor in tensors),
        )
        for bucket in bucketize(tensors, BUCKET_BYTES):
            self.publisher.put_bucket(bucket)
        return self.publisher.commit()


def digest_of(tensors: Sequence[NamedTensor]) -> str:
    """Digest of the version that these tensors are."""
    metas = [(tensor_meta(name, tensor), tensor) for name, tensor in tensors]
    return version_digest(
        (meta.name, meta.dtype, meta.shape, tensor_digest(_bytes(tensor))) for meta, tensor in metas
    )


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy()


@dataclass
class DirectPublisher:
    """Publishes straight into a Receiver of this process: what a transport does, without a transport."""

    receiver: Receiver
    incarnation_id: str = "life-1"
    outcomes_: list[SyncOutcome] = field(default_factory=list)
    _begin: SyncBegin | None = None
    _digests: dict[str, str] = field(default_factory=dict)
    _num_buckets: int = 0

    def begin(self, weight_version: int, *, held_s: float = 0.0, **fields: Any) -> None:
        self._begin = SyncBegin(
            sync_id=f"{self.incarnation_id}/{weight_version}",
            run_id="job",
            incarnation_id=self.incarnation_id,
            weight_version=weight_version,
            sources=("pp_0",),
            **fields,
        )
        self._digests, self._num_buckets = {}, 0
        assert isinstance(self.receiver.begin(self._begin), SyncAccepted)

    def put_bucket(self, tensors: Sequence[NamedTensor]) -> None:
        import numpy as np

        begin = self._open()
        metas = tuple(tensor_meta(name, tensor) for name, tensor in tensors)
        layout = payload_layout(metas)
        payload = np.zeros(layout.num_bytes, dtype=np.uint8)
        for start, meta, (_, tensor) in zip(layout.offsets, metas, tensors, strict=True):
            payload[start : start + meta.num_bytes] = _bytes(tensor)
        header = BucketHeader(
            sync_id=begin.sync_id,
            source="pp_0",
            index=self._num_buckets,
            weight_version=begin.weight_version,
            tensors=metas,
        )

        def fill(places: list[np.ndarray | FileRange]) -> list[str]:
            digests = unpack(Arrived(payload), metas, places)
            self._digests.update({meta.name: digest for meta, digest in zip(metas, digests, strict=True)})
            return digests

        self.receiver.take_bucket(header, fill)
        self._num_buckets += 1

    def commit(self) -> SyncReport:
        begin = self._open()
        self.receiver.source_done(
            SourceDone(
                sync_id=begin.sync_id, source="pp_0", num_buckets=self._num_buckets, digests=self._digests
            )
        )
        outcome = self.receiver.commit(SyncCommit(sync_id=begin.sync_id, weight_version=begin.weight_version))
        self._begin = None
        self.outcomes_.append(outcome)
        return SyncReport(
            weight_version=begin.weight_version,
            published=outcome.state == "sealed",
            reason=outcome.reason,
            held_s=0.0,
        )

    def abort(self, reason: str) -> None:
        self._begin = None

    def outcomes(self) -> list[SyncOutcome]:
        found, self.outcomes_ = self.outcomes_, []
        return found

    def close(self, timeout_s: float = 10.0) -> None:
        """Nothing is held."""

    def _open(self) -> SyncBegin:
        assert self._begin is not None, "no sync is open"
        return self._begin
