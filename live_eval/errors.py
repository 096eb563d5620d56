"""The error tree, one class per boundary that can fail.

LiveEvalError
 |- ConfigError        what the user gave cannot work; the message says what to change
 |- TransportError     a peer of a sync or of a channel is gone, late or wrong
 |   `- PeerError       the peer answered with an error of its own
 |- StoreError         the version store
 |   |- StoreFull      the budget or the disk cannot take the version
 |   |- VersionRefused the sync's content or number can never become a version; `reason` says why
 |   |- NoSuchVersion  never sealed here, or collected since
 |   `- CorruptVersion files that do not match their manifest, or a checkpoint that is not whole
 |- EngineError        an SGLang server
 |   |- EngineDied     the process or the connection is gone
 |   |- EngineTimeout  no answer in time
 |   |- LoadFailed     the engine refused or failed a load; what it holds is unknown
 |   `- PinMismatch    the engine's content is not the version it was told to load
 |- DatasetError       an eval set that cannot be read as it is
 |- RewardError        a reward function that failed on a sample
 `- LedgerError        the results database
     |- NoSuchJob        no job of this id was ever made
     `- AlreadyEnded     the job has its terminal state

Wire errors (protocol.errors) are a tree of their own, since protocol imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from live_eval.reasons import DiscardReason


CONVERT_IT = "Convert it"
"""With these words the message of a checkpoint in another format goes on to say what to do."""


class LiveEvalError(Exception):
    """Base of all errors that live-eval raises on purpose."""

    code = "error"


class ConfigError(LiveEvalError):
    """The user's settings cannot work together, or a value is out of range."""

    code = "config"


class TransportError(LiveEvalError):
    """A peer of a sync is gone, too late, or sent what it must not."""

    code = "transport"


class PeerError(TransportError):
    """The peer is there and answered with an error: it refused the request, or failed at it."""

    code = "peer"

    def __init__(
        self, remote_code: str, message: str, detail: Mapping[str, str] | None = None, *, what: str
    ) -> None:
        super().__init__(f"{what}: {message} [{remote_code}]")
        self.remote_code = remote_code
        """`code` of the error's class on the peer's side."""
        self.message = message
        """As the peer said it, without what was asked of whom."""
        self.detail = dict(detail or {})


class StoreError(LiveEvalError):
    """The version store could not do what was asked."""

    code = "store"


class StoreFull(StoreError):
    """Neither the byte budget nor the disk has room for the version."""

    code = "store_full"


class VersionRefused(StoreError):
    """What the sync carried, or its number, cannot become a version.

    `reason` is a live_eval.reasons.DiscardReason, `detail` names the tensor or the number.
    """

    code = "version_refused"

    def __init__(self, reason: DiscardReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class NoSuchVersion(StoreError):
    """The version was never sealed in this store, or has been collected."""

    code = "no_such_version"


class CorruptVersion(StoreError):
    """Files on disk do not match their manifest, or a checkpoint is incomplete."""

    code = "corrupt_version"


class EngineError(LiveEvalError):
    """An SGLang server did not do what was asked."""

    code = "engine"


class EngineDied(EngineError):
    """The server process or its connection is gone."""

    code = "engine_died"


class EngineTimeout(EngineError):
    """The server did not answer within its deadline."""

    code = "engine_timeout"


class LoadFailed(EngineError):
    """A weight load was refused or failed, so what the engine holds is unknown."""

    code = "load_failed"


class PinMismatch(EngineError):
    """What the engine computes or reports is not the version it was told to load."""

    code = "pin_mismatch"


class DatasetError(LiveEvalError):
    """An eval set cannot be read as it stands; the message names file and line."""

    code = "dataset"


class RewardError(LiveEvalError):
    """A reward function raised, or returned something that is not a score."""

    code = "reward"


class LedgerError(LiveEvalError):
    """The results database refused an operation, for example a second terminal state."""

    code = "ledger"


class NoSuchJob(LedgerError):
    """No job of this id was ever made."""

    code = "no_such_job"


class AlreadyEnded(LedgerError):
    """The job is in its terminal state, in which it stays."""

    code = "already_ended"
