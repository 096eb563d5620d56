"""The version store: sealed policy versions on disk, each a loadable HF checkpoint.

    base = BaseCheckpoint.read(path, allowed_absent=("model.mtp.*",))   # what a sync must carry
    base.expected() / optional() / known()  -> dict[name, TensorMeta]
    base.tied_pair                          -> (head, embedding) | None
    check_known(base, metas), check_whole(base, {name: digest})         # raise VersionRefused(reason, detail)

    store = VersionStore.open(root, base=base, max_bytes=..., keep_newest=..., writer=True)   # the receiver
    staged = store.begin(sync_begin)            # StoreFull, VersionRefused: recorded already
    views = staged.allocate(bucket_header)      # list of writable uint8 arrays, header order
    digests = staged.filled(bucket_header)      # after the bytes are there; pass digests= if you have them
    manifest = staged.seal()                    # or staged.discard(reason, detail)
    If a method of `staged` raises, the version is discarded, with the reason, already.

    store = VersionStore.open(root, max_bytes=..., keep_newest=...)     # the service: reads, pins, collects
    store.sealed() / stable() / records() / dropped() / discarded() / get(v)
    store.path(v), store.manifest(v), store.verify(v)                   # NoSuchVersion, CorruptVersion
    store.pin(v, owner, PinKind.WAITING), unpin(v, owner), upgrade(v, owner) -> bool, pins(), collect()
    store.unpin(v, FRESH_OWNER)                 # when it has been decided whether a new version is due

    check_complete(path)                        # a checkpoint that a user named
    check_place(root, index_bytes=..., kept=..., max_bytes=...)         # ConfigError with figures

Retention and completeness are pure; database.py holds SQLite, directories.py the order of file
operations, room.py the byte budget, assembly.py the checkpoint layout. No torch anywhere.
"""

from live_eval.store.base import BaseCheckpoint
from live_eval.store.catalogue import Catalogue
from live_eval.store.checkpoint import CheckpointReport, check_complete
from live_eval.store.completeness import check_known, check_whole
from live_eval.store.manifest import Manifest, TensorRecord
from live_eval.store.place import PlaceReport, check_place
from live_eval.store.records import (
    FRESH_OWNER,
    CollectReason,
    DiscardRecord,
    Incarnation,
    PinKind,
    PinRecord,
    VersionRecord,
    VersionState,
)
from live_eval.store.store import VersionStore
from live_eval.store.writer import StagedState, StagedVersion

__all__ = [
    "FRESH_OWNER",
    "BaseCheckpoint",
    "Catalogue",
    "CheckpointReport",
    "CollectReason",
    "DiscardRecord",
    "Incarnation",
    "Manifest",
    "PinKind",
    "PinRecord",
    "PlaceReport",
    "StagedState",
    "StagedVersion",
    "TensorRecord",
    "VersionRecord",
    "VersionState",
    "VersionStore",
    "check_complete",
    "check_known",
    "check_place",
    "check_whole",
]
