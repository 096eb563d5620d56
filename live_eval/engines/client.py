"""HTTP client of one SGLang server: typed answers, typed errors, a deadline on every call.

It knows no policy: it neither restarts nor chooses engines, and it never repeats a request that
a server has answered. The one repetition is for a connection that was closed without an answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

import httpx

from live_eval.engines.requests import FinishReason, Forwarded, Generation
from live_eval.errors import EngineDied, EngineError, EngineTimeout, LoadFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from live_eval.engines.requests import GenRequest

logger = logging.getLogger(__name__)

Body = dict[str, Any] | None
MAX_BODY_IN_ERROR = 500


class EngineRefused(EngineError):
    """The server answered with an error status; `status` and `body` are its words."""

    code = "engine_refused"

    def __init__(self, message: str, *, status: int, body: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInfo:
    """What the server says it serves."""

    model_path: str
    weight_version: str
    """The label of the last load; `default` before the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerInfo:
    """What kind of server it is."""

    version: str
    dtype: str
    device: str
    tp_size: int
    model_path: str

    @property
    def flavour(self) -> str:
        """All that changes the numbers a model computes: `sglang-0.5.15.post1/float32/cpu/tp1`."""
        return f"sglang-{self.version}/{self.dtype}/{self.device}/tp{self.tp_size}"


class SGLangClient:
    """Talks to one server. Safe for concurrent use in one event loop; `async with`, or aclose()."""

    def __init__(self, url: str, *, name: str = "engine") -> None:
        self.url = url
        self.name = name
        self._http = httpx.AsyncClient(
            base_url=url,
            # Deadlines are set around whole calls; a proxy of the environment is never meant for an engine.
            timeout=httpx.Timeout(None, connect=5.0),
            # A connection for each call: SGLang closes idle ones after 5 s, perhaps just as we send, and a
            # new one on the same host costs nothing beside a call of prompts.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            trust_env=False,
            verify=url.startswith("https:"),  # reading the certificates takes longer than a small load
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def health(self, *, timeout_s: float = 30.0) -> bool:
        """Whether the server's own health check, which generates a token, says so."""
        try:
            await self._call("GET", "/health", timeout_s=timeout_s)
        except EngineRefused:
            return False
        return True

    async def model_info(self, *, timeout_s: float = 10.0) -> ModelInfo:
        """Path and label of the last load that the server believes in."""
        answer = await self._fields("/model_info", ("model_path", "weight_version"), timeout_s=timeout_s)
        return ModelInfo(model_path=str(answer["model_path"]), weight_version=str(answer["weight_version"]))

    async def server_info(self, *, timeout_s: float = 30.0) -> ServerInfo:
        """Version, dtype, device and tensor parallel size of the server."""
        names = ("version", "dtype", "device", "tp_size", "model_path")
        answer = await self._fields("/server_info", names, timeout_s=timeout_s)
        return ServerInfo(
            version=str(answer["version"]),
            dtype=str(answer["dtype"]),
            device=str(answer["device"]),
            tp_size=int(answer["tp_size"]),
            model_path=str(answer["model_path"]),
        )

    async def generate(self, requests: Sequence[GenRequest], *, timeout_s: float) -> list[Generation]:
        """Answer all requests in one call, in their order.

        EngineRefused: the server took none of them (one bad prompt spoils the call).
        EngineDied, EngineTimeout: what became of them is unknown.
        """
        if not requests:
            return []
        body: dict[str, Any] = {
            "rid": [r.request_id for r in requests],
            "sampling_params": [r.sampling for r in requests],
        }
        if all(r.input_ids is not None for r in requests):
            body["input_ids"] = [list(r.input_ids or ()) for r in requests]
        elif all(r.text is not None for r in requests):
            body["text"] = [r.text for r in requests]
        else:
            raise EngineError("the requests of one call must all have text, or all have input_ids")
        answers = await self._json("POST", "/generate", body=body, timeout_s=timeout_s)
        try:
            return [self._generation(r.request_id, a) for r, a in zip(requests, answers, strict=True)]
        except (KeyError, TypeError, ValueError) as error:
            found = _short(json.dumps(answers))
            raise EngineError(f"{self._who()} answered {len(requests)} prompts with {found}") from error

    async def logprobs(
        self, token_ids: Sequence[Sequence[int]], *, timeout_s: float = 60.0
    ) -> list[list[float]]:
        """Log-probability of each token but the first of each sequence; NaN where the server has NaN."""
        body = {
            "input_ids": [list(ids) for ids in token_ids],
            "sampling_params": {"max_new_tokens": 0, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": 0,
        }
        answers = await self._json("POST", "/generate", body=body, timeout_s=timeout_s)
        try:
            found = zip(token_ids, answers, strict=True)
            return [_logprobs(ids, answer["meta_info"]["input_token_logprobs"]) for ids, answer in found]
        except (KeyError, TypeError, ValueError) as error:
            raise EngineError(f"{self._who()} sent no log-probs: {_short(json.dumps(answers))}") from error

    async def forward(
        self, method: str, path: str, *, body: bytes, content_type: str, timeout_s: float
    ) -> Forwarded:
        """The server's answer to any request, whatever its status; sent once."""
        headers = {"content-type": content_type} if content_type else {}
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._http.request(method, path, content=body, headers=headers)
        except TimeoutError as error:
            raise EngineTimeout(f"{self._who()} did not answer {path} in {timeout_s:.1f} s") from error
        except httpx.TransportError as error:
            raise EngineDied(f"{self._who()} is gone during {path}: {error!r}") from error
        return Forwarded(
            status=response.status_code,
            content_type=response.headers.get("content-type", "application/octet-stream"),
            body=response.content,
            engine=self.name,
        )

    async def checksum(self, *, timeout_s: float = 60.0) -> str:
        """SGLang's own checksum over all weights that the server holds; empty where it has none to give.

        Ask an idle server. One that has none says so with an error status, and is none the worse for it.
        """
        body = {"action": "checksum"}
        try:
            answer = await self._json("POST", "/weights_checker", body=body, timeout_s=timeout_s)
        except EngineRefused as error:
            logger.debug("%s has no checksums: %s %s", self._who(), error.status, error.body)
            return ""
        return str(answer.get("per_engine_checksum") or "") if isinstance(answer, dict) else ""

    async def abort_all(self, *, timeout_s: float = 10.0) -> None:
        """End every request that has arrived at the server; it answers them with what they have."""
        await self._call("POST", "/abort_request", body={"rid": "", "abort_all": True}, timeout_s=timeout_s)

    async def freeze_gc(self, *, timeout_s: float = 30.0) -> None:
        """Let the server's garbage collector leave alone what start-up made; nothing where it cannot.

        Each flush on a CPU collects garbage, which takes half a second while it walks through all of that.
        """
        try:
            await self._call("POST", "/freeze_gc", timeout_s=timeout_s)
        except EngineRefused as error:
            logger.debug("%s cannot freeze its garbage collector: %s", self._who(), error)

    async def flush_until_idle(self, *, deadline_s: float) -> None:
        """Flush the cache, again and again until the server is idle and does it.

        EngineTimeout after `deadline_s`, with the server's last answer.
        """
        deadline = time.monotonic() + deadline_s
        pause, last = 0.02, "no answer"
        while (left := deadline - time.monotonic()) > 0:
            try:
                await self._call("POST", "/flush_cache", timeout_s=left)
                return
            except EngineRefused as error:
                last = f"{error.status} {error.body}"
            except EngineTimeout:
                break
            await asyncio.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(pause * 2, 0.5)
        raise EngineTimeout(f"{self._who()} did not become idle in {deadline_s:g} s; its last answer: {last}")

    async def load_from_disk(self, path: Path, label: str, *, timeout_s: float) -> float:
        """Load a checkpoint directory under a label; returns the seconds it took.

        LoadFailed on any answer but a success, and on none in time: what the server holds is
        unknown then. Call it only on a server that is idle and flushed.
        """
        body = {"model_path": str(path.absolute()), "weight_version": label}
        began = time.monotonic()
        try:
            answer = await self._json(
                "POST", "/update_weights_from_disk", body=body, timeout_s=timeout_s, repeat=False
            )
        except EngineError as error:
            raise LoadFailed(f"loading {path} as {label!r}: {error}") from error
        if not isinstance(answer, dict) or answer.get("success") is not True:
            raise LoadFailed(
                f"{self._who()} answered {_short(json.dumps(answer))} to loading {path} as {label!r}"
            )
        return time.monotonic() - began

    def _generation(self, request_id: str, answer: dict[str, Any]) -> Generation:
        meta = answer["meta_info"]
        if meta.get("id", request_id) != request_id:
            raise EngineError(f"{self._who()} answered request {request_id!r} with {meta['id']!r}")
        finish = meta.get("finish_reason") or {}
        return Generation(
            request_id=request_id,
            text=answer["text"],
            num_tokens=int(meta["completion_tokens"]),
            finish_reason=cast("FinishReason", finish.get("type", "abort")),
            label=_label(meta),
            engine=self.name,
            output_ids=tuple(answer.get("output_ids") or ()),
            detail=str(finish.get("message", "")),
        )

    async def _fields(self, path: str, names: tuple[str, ...], *, timeout_s: float) -> dict[str, Any]:
        answer = await self._json("GET", path, timeout_s=timeout_s)
        if not isinstance(answer, dict) or not answer.keys() >= set(names):
            raise EngineError(f"{self._who()} answered {path} without one of {', '.join(names)}")
        return answer

    async def _json(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float,
        body: dict[str, Any] | None = None,
        repeat: bool = True,
    ) -> Any:
        response = await self._call(method, path, body=body, timeout_s=timeout_s, repeat=repeat)
        try:
            return response.json()
        except ValueError as error:
            raise EngineError(f"{self._who()} answered {path} with {_short(response.text)}") from error

    async def _call(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float,
        body: dict[str, Any] | None = None,
        repeat: bool = True,
    ) -> httpx.Response:
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._send(method, path, body, repeat=repeat)
        except TimeoutError as error:
            raise EngineTimeout(f"{self._who()} did not answer {path} in {timeout_s:.1f} s") from error
        if response.is_success:
            return response
        raise EngineRefused(
            f"{self._who()} answered {path} with {response.status_code} {_short(response.text)}",
            status=response.status_code,
            body=_short(response.text),
        )

    async def _send(
        self, method: str, path: str, body: dict[str, Any] | None, *, repeat: bool
    ) -> httpx.Response:
        try:
            return await self._http.request(method, path, json=body)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError) as error:
            if not repeat:
                raise EngineDied(f"{self._who()} closed the connection during {path}: {error!r}") from error
            logger.info("%s closed a connection, %s is sent again: %r", self._who(), path, error)
        except httpx.TransportError as error:
            raise EngineDied(f"{self._who()} cannot be reached for {path}: {error!r}") from error
        try:
            return await self._http.request(method, path, json=body)
        except httpx.TransportError as error:
            raise EngineDied(f"{self._who()} is gone during {path}: {error!r}") from error

    def _who(self) -> str:
        return f"engine {self.name} at {self.url}"


def _label(meta: dict[str, Any]) -> str:
    """The weight label of an answer: one, or all that tokens of it were generated on, joined by `+`.

    Newer servers name each segment of the tokens with its weights; older ones the label at the end.
    """
    last = str(meta.get("weight_version", ""))
    segments = meta.get("weight_versions") or ()
    return "+".join(dict.fromkeys([*(str(segment["version"]) for segment in segments), last]))


def _logprobs(ids: Sequence[int], row: Sequence[Sequence[Any]]) -> list[float]:
    """The first token has no log-prob. JSON has no NaN, so the server sends null for it."""
    return [float("nan") if p is None else float(p) for _, (p, *_) in zip(ids, row, strict=True)][1:]


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MAX_BODY_IN_ERROR else text[:MAX_BODY_IN_ERROR] + "..."
