"""Syncs that must not become versions, played against a real transport by hand.

Each scenario begins weight version 1 of a trainer's life of its own and does one thing wrong;
`SCENARIOS` says with which reason it must be discarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from fakes.sync import DOWN, EMBED, MODEL, NORM, UP, begin, bucket, commit, content, done

from live_eval.digests import tensor_digest
from protocol.messages import BucketHeader, Message, SyncAbort, SyncBegin, SyncOutcome, TensorMeta


class Player(Protocol):
    """A publisher without manners: sends what it is told, over some transport."""

    def ask(self, message: Message) -> Message:
        """Send a message that carries no bucket; the answer."""
        ...

    def bucket(self, header: BucketHeader, data: Sequence[np.ndarray]) -> Message:
        """Send a bucket with the bytes of its tensors; the answer."""
        ...


def bytes_of(tensors: Sequence[TensorMeta], salt: int = 1) -> list[np.ndarray]:
    """The content of tensors."""
    return [content(tensor, salt) for tensor in tensors]


def digests_of(tensors: Sequence[TensorMeta], salt: int = 1) -> dict[str, str]:
    """Name -> digest of that content."""
    return {tensor.name: tensor_digest(content(tensor, salt)) for tensor in tensors}


def send(player: Player, of: SyncBegin, index: int, *tensors: TensorMeta, source: str = "pp_0") -> Message:
    """A bucket whose bytes are right."""
    return player.bucket(bucket(of, index, *tensors, source=source), bytes_of(tensors, of.weight_version))


def whole(player: Player, of: SyncBegin) -> SyncOutcome:
    """A sync with nothing wrong."""
    player.ask(of)
    send(player, of, 0, EMBED, UP)
    send(player, of, 1, DOWN, NORM)
    player.ask(done(of, 2, digests=digests_of(MODEL, of.weight_version)))
    outcome = player.ask(commit(of))
    assert isinstance(outcome, SyncOutcome), outcome
    return outcome


def wrong_dtype(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    odd = TensorMeta(UP.name, "float16", (4, 8))
    player.bucket(bucket(of, 0, odd), bytes_of([UP]))


def wrong_shape(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    odd = TensorMeta(UP.name, "float32", (2, 8))
    player.bucket(bucket(of, 0, odd), bytes_of([UP]))


def larger_shape(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    odd = TensorMeta(UP.name, "float32", (400, 40))
    player.bucket(bucket(of, 0, odd), [np.ones(odd.num_bytes, dtype=np.uint8)])


def unknown_tensor(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    odd = TensorMeta("language_model." + UP.name, "float32", (4, 4))
    player.bucket(bucket(of, 0, EMBED, odd), bytes_of([EMBED, UP]))


def name_twice(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    player.bucket(bucket(of, 0, UP, UP), bytes_of([UP, UP]))


def empty_bucket(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    player.bucket(bucket(of, 0), [])


def repeated_bucket(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    send(player, of, 0, EMBED, UP)
    send(player, of, 0, EMBED, UP)


def reordered_buckets(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    send(player, of, 1, DOWN, NORM)
    send(player, of, 0, EMBED, UP)
    player.ask(done(of, 2))
    player.ask(commit(of))


def lost_bucket(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    send(player, of, 0, *MODEL)
    player.ask(done(of, 2))
    player.ask(commit(of))


def two_versions(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    send(player, of, 0, EMBED, UP)
    header = bucket(of, 1, DOWN, NORM, weight_version=of.weight_version + 1)
    player.bucket(header, bytes_of([DOWN, NORM]))
    player.ask(done(of, 2))
    player.ask(commit(of))


def commit_of_another_version(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    send(player, of, 0, *MODEL)
    player.ask(done(of, 1))
    player.ask(commit(of, of.weight_version + 1))


def commit_without_buckets(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    player.ask(commit(of))


def truncated(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    send(player, of, 0, EMBED, UP)
    player.ask(done(of, 1, digests=digests_of([EMBED, UP])))
    player.ask(commit(of))


def swapped_names(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    player.bucket(bucket(of, 0, EMBED, DOWN, UP, NORM), bytes_of([EMBED, UP, DOWN, NORM]))
    player.ask(done(of, 1, digests=digests_of(MODEL)))
    player.ask(commit(of))


def damaged_bytes(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    data = bytes_of(MODEL)
    data[2][5] ^= 1
    player.bucket(bucket(of, 0, *MODEL), data)
    player.ask(done(of, 1, digests=digests_of(MODEL)))
    player.ask(commit(of))


def one_tensor_two_contents(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    send(player, of, 0, *MODEL)
    player.bucket(bucket(of, 1, EMBED), bytes_of([EMBED], salt=9))


def unannounced_source(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    send(player, of, 0, *MODEL, source="pp_5")


def source_that_never_finishes(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    send(player, of, 0, *MODEL)
    player.ask(commit(of))


def second_begin(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    send(player, of, 0, *MODEL)
    player.ask(begin(of.weight_version + 1, incarnation=of.incarnation_id))
    player.ask(commit(of))


def aborted(player: Player, of: SyncBegin) -> None:
    player.ask(of)
    send(player, of, 0, *MODEL)
    player.ask(SyncAbort(sync_id=of.sync_id, reason="publisher_aborted"))
    player.ask(done(of, 1))
    player.ask(commit(of))


def wrong_weight_version(player: Player, of: SyncBegin) -> None:
    player.ask(begin(0, incarnation=of.incarnation_id))


SCENARIOS: dict[str, tuple[Callable[[Player, SyncBegin], None], str]] = {
    scenario.__name__: (scenario, reason)
    for scenario, reason in [
        (wrong_dtype, "wrong_dtype"),
        (wrong_shape, "wrong_shape"),
        (larger_shape, "wrong_shape"),
        (unknown_tensor, "unknown_tensor"),
        (name_twice, "duplicate_tensor"),
        (empty_bucket, "empty"),
        (repeated_bucket, "out_of_order"),
        (reordered_buckets, "out_of_order"),
        (lost_bucket, "incomplete"),
        (two_versions, "mixed_versions"),
        (commit_of_another_version, "mixed_versions"),
        (commit_without_buckets, "empty"),
        (truncated, "incomplete"),
        (swapped_names, "digest_mismatch"),
        (damaged_bytes, "digest_mismatch"),
        (one_tensor_two_contents, "duplicate_tensor"),
        (unannounced_source, "unknown_source"),
        (source_that_never_finishes, "source_deadline"),
        (second_begin, "superseded_by_begin"),
        (aborted, "publisher_aborted"),
        (wrong_weight_version, "bad_weight_version"),
    ]
}
