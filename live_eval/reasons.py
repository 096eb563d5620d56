"""The closed lists of reasons and states that records carry, so that one thing has one word.

Job states:  waiting -> running -> succeeded | failed | timed_out | cancelled
             waiting -> superseded | dropped | cancelled | failed | timed_out
             running -> waiting  (the run failed or was cut, and the job is run again)
"""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    """State of a job: one target on one dataset."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    DROPPED = "dropped"

    @property
    def terminal(self) -> bool:
        """Whether a job in this state never changes again."""
        return self not in (JobStatus.WAITING, JobStatus.RUNNING)


class EndReason(StrEnum):
    """Why a job ended as it did."""

    COMPLETED = "completed"
    NEWER_VERSION = "newer_version"
    """superseded or cancelled because a newer due version is there."""
    QUEUE_FULL = "queue_full"
    STORE_FULL = "store_full"
    VERSION_DISCARDED = "version_discarded"
    INCARNATION_ENDED = "incarnation_ended"
    USER = "user"
    SHUTDOWN = "shutdown"
    DRAIN_TIMEOUT = "drain_timeout"
    JOB_TIMEOUT = "job_timeout"
    LOAD_FAILED = "load_failed"
    CORRUPT_VERSION = "corrupt_version"
    PIN_MISMATCH = "pin_mismatch"
    MIXED_VERSION = "mixed_version"
    ENGINE_FAILED = "engine_failed"
    NO_DATA = "no_data"
    """failed because no sample could be scored."""
    LOW_COVERAGE = "low_coverage"
    """failed because too few of the expected samples could be scored; the score is withheld."""
    EARLY_STOP = "early_stop"
    """succeeded with enough scored samples, though its time limit or the dataset's early stop ended it."""
    VERSION_GONE = "version_gone"
    SERVICE_RESTARTED = "service_restarted"
    """Not an end: the run was cut by a restart of the service, and the job is run again."""
    INTERNAL = "internal"


class DiscardReason(StrEnum):
    """Why a sync never became a version."""

    PUBLISHER_DEADLINE = "publisher_deadline"
    PUBLISHER_ABORTED = "publisher_aborted"
    PUBLISHER_LOST = "publisher_lost"
    SOURCE_DEADLINE = "source_deadline"
    """A source never finished."""
    SUPERSEDED_BY_BEGIN = "superseded_by_begin"
    """A new sync began before this one was committed."""
    EMPTY = "empty"
    """Commit without buckets, or a bucket without tensors."""
    INCOMPLETE = "incomplete"
    """Tensors of the model are missing at commit."""
    UNKNOWN_TENSOR = "unknown_tensor"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    WRONG_SIZE = "wrong_size"
    """The payload's bytes are not what the header announced."""
    DUPLICATE_TENSOR = "duplicate_tensor"
    """One tensor twice with different bytes."""
    TIED_MISMATCH = "tied_mismatch"
    MIXED_VERSIONS = "mixed_versions"
    """Buckets of two weight versions in one sync."""
    OUT_OF_ORDER = "out_of_order"
    """A bucket again, a bucket skipped, or one after its source was done."""
    UNKNOWN_SOURCE = "unknown_source"
    """A bucket from a source that the begin did not announce, or a begin without sources."""
    DIGEST_MISMATCH = "digest_mismatch"
    STORE_FULL = "store_full"
    STORE_FAILED = "store_failed"
    PAYLOAD_LOST = "payload_lost"
    """An object ref's owner died, the object was lost or late, or memory could not be read."""
    GROUP_FAILED = "group_failed"
    """The torch.distributed group broke while receiving."""
    RECEIVER_RESTARTED = "receiver_restarted"
    BAD_WEIGHT_VERSION = "bad_weight_version"
    """Not a positive integer, or not above the incarnation's last."""
