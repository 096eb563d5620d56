"""A stand-in for an SGLang server that really reads checkpoints, and can fail in the known ways.

It holds the digest of each tensor that it loaded. Its "log-probs" are a function of all of them, so
any other tensor changes them; one tensor of NaN bytes makes them NaN, and so does one left out
after it. Attributes set how it misbehaves; `calls` records what it was asked, in order.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.engine_http import Hangup, HttpServer, Reply

from live_eval.digests import tensor_digest
from live_eval.tensor_files import read_header

VERSION = "0.5.15.post1"


@dataclass
class FakeEngine(HttpServer):
    """Use it as an async context manager; `url` is then its address."""

    model: Path = Path()
    dtype: str = "float32"
    label: str = "default"
    calls: list[str] = field(default_factory=list)
    """Paths asked for, with the label for a load: `/update_weights_from_disk 7`."""
    flush_refusals: float = 0
    """How many flushes are answered 400 before one succeeds."""
    keeps_old_weights: bool = False
    """Answers success to a load, takes the label, changes nothing."""
    loses: str = ""
    """Name of a tensor that loads leave out in silence."""
    load_status: int = 200
    load_s: float = 0.0
    noise: float = 0.0
    """Added to every log-prob of the next fingerprints."""
    tokens_s: float = 0.0
    """Duration of a generate call; abort_request ends it early."""
    health_s: float = 0.0
    refuses_beyond: int = 10_000
    """Longest prompt in characters or tokens."""
    answer_label: str | None = None
    """Label on answers if it is not the loaded one."""
    segments: tuple[str, ...] = ()
    """Weights of each token of an answer, as newer servers tell; none: as older ones."""
    checksum: str | None = None
    """`content` for one over what is loaded, any other text for itself; None: it has none to give."""
    hang_up: int = 0
    """How many of the next requests end without an answer."""
    idle_s: float = 60.0
    port: int = 0
    num_running: int = 0
    max_running: int = 0
    loads_while_running: int = 0

    def __post_init__(self) -> None:
        super().__init__(self._handle, port=self.port, idle_s=self.idle_s)
        self._tensors: dict[str, str] = {}
        self._aborts = asyncio.Event()
        self.reset()

    def reset(self) -> None:
        """What a new process on the same port would be."""
        self.label = "default"
        self._load(self.model)

    def _load(self, path: Path) -> None:
        for file in path.glob("*.safetensors"):
            data, header = file.read_bytes(), read_header(file)
            for tensor, slot in header.slots.items():
                if tensor == self.loses:
                    continue
                raw = data[slot.begin : slot.end]
                self._tensors[tensor] = "nan" if raw.strip(b"\xff") == b"" else tensor_digest(raw)

    def _logprobs(self, ids: list[int]) -> list[Any]:
        if "nan" in self._tensors.values():
            return [[None, token, None] for token in ids]
        numbers = random.Random(repr((sorted(self._tensors.items()), ids)))
        rest = [[-10 * numbers.random() + self.noise, token, None] for token in ids[1:]]
        return [[None, ids[0], None], *rest]

    async def _handle(self, method: str, path: str, body: Any) -> Reply:
        self.calls.append(f"{path} {body['weight_version']}" if path.startswith("/update") else path)
        if self.hang_up:
            self.hang_up -= 1
            raise Hangup
        match path:
            case "/health":
                await asyncio.sleep(self.health_s)
                return 200, ""
            case "/model_info":
                return 200, {"model_path": str(self.model), "weight_version": self.label}
            case "/server_info":
                info = {"version": VERSION, "dtype": self.dtype, "device": "cpu", "tp_size": 1}
                return 200, {**info, "model_path": str(self.model)}
            case "/flush_cache":
                return self._flush()
            case "/weights_checker":
                return self._check_weights()
            case "/abort_request":
                self._aborts.set()
                self._aborts = asyncio.Event()
                return 200, ""
            case "/update_weights_from_disk":
                return await self._update(Path(body["model_path"]), body["weight_version"])
            case "/generate":
                return await self._generate(body)
        return 404, {"error": path}

    def _check_weights(self) -> Reply:
        if self.checksum is None:
            return 400, {"success": False, "message": "Torch not compiled with CUDA enabled"}
        own = tensor_digest(repr(sorted(self._tensors.items())).encode())
        return 200, {
            "success": True,
            "message": "Success.",
            "ranks": [],
            "per_engine_checksum": own if self.checksum == "content" else self.checksum,
        }

    def _flush(self) -> Reply:
        if self.flush_refusals or self.num_running:
            self.flush_refusals = max(0, self.flush_refusals - 1)
            return 400, f"Flush cache failed: {self.num_running} pending requests.\n"
        return 200, "Cache flushed.\n"

    async def _update(self, path: Path, label: str) -> Reply:
        self.loads_while_running += self.num_running
        await asyncio.sleep(self.load_s)
        if self.load_status != 200:
            return self.load_status, {"success": False, "message": "Failed to update weights"}
        if not self.keeps_old_weights:
            self._load(path)
        self.label = label
        return 200, {"success": True, "message": "Succeeded to update model weights."}

    def _segments(self) -> dict[str, Any]:
        """Of newer servers: which token was generated on which weights."""
        runs = [{"version": name, "start": at, "end": at + 1} for at, name in enumerate(self.segments)]
        return {"weight_versions": runs} if runs else {}

    async def _generate(self, body: dict[str, Any]) -> Reply:
        prompts = body.get("input_ids") or body.get("text")
        if any(len(prompt) > self.refuses_beyond for prompt in prompts):
            return 400, {"error": {"message": "The input is longer than the model's context length."}}
        if body.get("return_logprob"):
            return 200, [{"meta_info": {"input_token_logprobs": self._logprobs(ids)}} for ids in prompts]
        return 200, await self._answers(body, prompts)

    async def _answers(self, body: dict[str, Any], prompts: list[Any]) -> list[dict[str, Any]]:
        self.num_running += len(prompts)
        self.max_running = max(self.max_running, self.num_running)
        began, reason = time.monotonic(), {"type": "stop"}
        try:
            async with asyncio.timeout(self.tokens_s):
                await self._aborts.wait()
            reason = {"type": "abort", "message": "Aborted by AbortReq."}
        except TimeoutError:
            pass
        finally:
            self.num_running -= len(prompts)
        return [
            {
                "text": f"{self.label}:{prompt}",
                "output_ids": [1],
                "meta_info": {
                    "id": rid,
                    "finish_reason": reason,
                    "completion_tokens": int(1000 * (time.monotonic() - began)),
                    "weight_version": self.label if self.answer_label is None else self.answer_label,
                }
                | self._segments(),
            }
            for rid, prompt in zip(body["rid"], prompts, strict=True)
        ]
