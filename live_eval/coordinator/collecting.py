"""Removing what the store need not keep, beside the loop that decided so.

A version's files may be hundreds of gigabytes, and a file system takes its time to give their pages
back. The loop does not wait for that, and the thread stands back, so that an evaluation which begins is
not slowed down. Knows no versions. Invariant: one removal at a time, and one that begins after the last
`ask`.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from live_eval.errors import StoreError
from live_eval.processes import stand_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from live_eval.store.store import VersionStore

logger = logging.getLogger(__name__)


class Collecting:
    """Collects in a thread of its own. Belongs to one event loop; close() it before the store."""

    def __init__(self, store: VersionStore, *, on_fault: Callable[[BaseException], None]) -> None:
        """`on_fault` is told what a removal raises beyond a StoreError, which is tried again."""
        self._store = store
        self._on_fault = on_fault
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="collect", initializer=stand_back)
        self._asked = self._closed = False
        self._task: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Something may have lost its last claim. After close() the next life finds it."""
        if self._closed:
            return
        self._asked = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._collect(), name="collect")
            self._task.add_done_callback(self._over)

    async def close(self, timeout_s: float) -> None:
        """Wait until all that was asked for is done, or so long: what is left is left to the next life."""
        self._closed = True
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=timeout_s)
        self._asked = False
        self._thread.shutdown(wait=False)

    async def _collect(self) -> None:
        loop = asyncio.get_running_loop()
        while self._asked:
            self._asked = False
            try:
                await loop.run_in_executor(self._thread, self._store.collect)
            except StoreError as error:  # the bytes go on counting, and the next one tries again
                logger.warning("what nobody needs stays in the store: %s", error)

    def _over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_fault(error)
