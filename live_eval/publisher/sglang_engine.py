"""An SGLang server as an engine that the trainer updates, over its HTTP interface.

Newer servers want a weight update opened before its first bucket and closed after its last; a server
says itself whether it does: an older one does not know the request.

Invariants: a bucket is announced to a server only if it is in the group, since a name that it does not
know ends it; every call has a deadline.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import httpx

from live_eval.errors import TransportError

if TYPE_CHECKING:
    from live_eval.publisher.engines import Invitation
    from protocol.messages import BucketHeader

KEEPALIVE_S = 2.0
"""Shorter than the 5 s after which SGLang closes an idle connection."""
FLUSH_PAUSE_S = 0.05
MAX_BODY_IN_ERROR = 500


class SGLangEngine:
    """One server at `url`; `num_ranks` is its tensor parallel size."""

    def __init__(self, url: str, *, num_ranks: int = 1) -> None:
        self.name = f"SGLang at {url}"
        self.num_ranks = num_ranks
        self._http = httpx.Client(
            base_url=url,
            limits=httpx.Limits(keepalive_expiry=KEEPALIVE_S),
            trust_env=False,
            verify=url.startswith("https:"),
        )
        self._label = ""
        self._lives = 0
        self._has_updates: bool | None = None
        """Whether this life of the server wants weight updates opened; None: not asked yet."""
        self._is_open = False

    def alive(self, timeout_s: float) -> str:
        """A server that does not show the label of the last sync is a new one, or was loaded by others."""
        label = str(self._call("GET", "/model_info", None, timeout_s).json().get("weight_version"))
        if self._label and label != self._label:
            self._lives += 1
            self._label = ""
            self._has_updates = None
            self._is_open = False
        return f"life {self._lives}"

    def join(self, invitation: Invitation) -> None:
        body = {
            "master_address": invitation.master_address,
            "master_port": invitation.master_port,
            "rank_offset": invitation.rank_offset,
            "world_size": invitation.world_size,
            "group_name": invitation.group_name,
            "backend": invitation.backend,
        }
        self._call("POST", "/init_weights_update_group", body, invitation.timeout_s)

    def leave(self, group_name: str, timeout_s: float) -> None:
        self._call("POST", "/destroy_weights_update_group", {"group_name": group_name}, timeout_s)

    def pause(self, timeout_s: float) -> None:
        """Aborts what is running, as slime does."""
        self._call("POST", "/pause_generation", {}, timeout_s)

    def flush(self, timeout_s: float) -> None:
        """Tries until the server is idle; it answers 400 as long as it is not."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = max(deadline - time.monotonic(), FLUSH_PAUSE_S)
            answer = self._send("POST", "/flush_cache", None, left)
            if answer.status_code == httpx.codes.OK:
                self._open_update(max(deadline - time.monotonic(), FLUSH_PAUSE_S))
                return
            if time.monotonic() > deadline:
                raise TransportError(f"{self.name} was not idle within {timeout_s:g} s: {_body(answer)}")
            time.sleep(FLUSH_PAUSE_S)

    def receive_bucket(self, header: BucketHeader, group_name: str, timeout_s: float) -> None:
        body = {
            "names": [tensor.name for tensor in header.tensors],
            "dtypes": [tensor.dtype for tensor in header.tensors],
            "shapes": [list(tensor.shape) for tensor in header.tensors],
            "group_name": group_name,
            "flush_cache": False,  # flushed before the first bucket, and nothing is computed until resume
            "weight_version": str(header.weight_version),
        }
        self._call("POST", "/update_weights_from_distributed", body, timeout_s)
        self._label = str(header.weight_version)

    def resume(self, timeout_s: float) -> None:
        """Close the update, if one is open, whether it came to its end or not; then go on."""
        if self._is_open:
            self._is_open = False
            self._call("POST", "/end_weight_update", {}, timeout_s)
        self._call("POST", "/continue_generation", {}, timeout_s)

    def _open_update(self, timeout_s: float) -> None:
        """Open a weight update where the server knows that: before a broadcast, which waits for everyone."""
        if self._has_updates is False or self._is_open:
            return
        answer = self._send("POST", "/begin_weight_update", {}, timeout_s)
        self._has_updates = answer.status_code not in (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED)
        if self._has_updates and answer.status_code != httpx.codes.OK:
            raise TransportError(f"{self.name} opens no weight update: {answer.status_code} {_body(answer)}")
        self._is_open = self._has_updates

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _call(self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> httpx.Response:
        answer = self._send(method, path, body, timeout_s)
        if answer.status_code != httpx.codes.OK:
            raise TransportError(f"{self.name} refused {path} with {answer.status_code}: {_body(answer)}")
        return answer

    def _send(self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> httpx.Response:
        try:
            return self._http.request(method, path, json=body, timeout=timeout_s)
        except httpx.TimeoutException as error:
            raise TransportError(f"{self.name} did not answer {path} within {timeout_s:g} s") from error
        except httpx.HTTPError as error:
            raise TransportError(f"{self.name} is gone: {path}: {error}") from error


def _body(answer: httpx.Response) -> str:
    return answer.text[:MAX_BODY_IN_ERROR]
