"""One bucket of a broadcast, for whoever is a member of the trainer's group.

Knows the receiver and the groups, no transport of messages. Invariant: receives are posted at once
and never an error raised before they are through, also for a bucket that cannot be part of the sync:
a bad sync is discarded, the group stays whole.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from live_eval.errors import LiveEvalError, TransportError
from live_eval.reasons import DiscardReason
from live_eval.subscriber.expected import SyncFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from live_eval.subscriber.groups import GroupTable
    from live_eval.subscriber.receiver import Receiver
    from protocol.messages import BucketHeader, Message, ReceiveBucket

logger = logging.getLogger(__name__)


def receive_broadcast(
    receiver: Receiver, groups: GroupTable, request: ReceiveBucket
) -> Callable[[], Message]:
    """Post the receives of a bucket and return when its bytes have arrived.

    What is returned judges them when it is called, and answers as the header would be; TransportError
    for a sync that nobody began here. TransportError before anything is posted if this process is not in
    the group, and if the group breaks.
    """
    header = request.header
    groups.check(request.group_name)
    refused: LiveEvalError | None = None
    try:
        memory = receiver.open_bucket(header)
    except (SyncFault, TransportError) as error:
        refused = error
        memory = _scratch(header)
    try:
        groups.receive(request.group_name, memory)
    except TransportError as error:
        if refused is None:
            receiver.fail(header.sync_id, DiscardReason.GROUP_FAILED, str(error))
        raise
    return lambda: _judged(receiver, header, refused)


def _judged(receiver: Receiver, header: BucketHeader, refused: LiveEvalError | None) -> Message:
    if refused is None:
        try:
            return receiver.bucket_filled(header)
        except SyncFault as error:
            refused = error
    logger.warning("bucket %d of %s is no use: %s", header.index, header.source, refused)
    outcome = receiver.outcome(header.sync_id)
    if outcome is None:
        raise refused
    return outcome


def _scratch(header: BucketHeader) -> list[np.ndarray]:
    """Memory for a bucket that nobody keeps."""
    return [np.empty(tensor.num_bytes, dtype=np.uint8) for tensor in header.tensors]
