"""Stands before a real SGLang server and lies about loads, as a broken engine would."""

from __future__ import annotations

from typing import Any

import httpx
from fakes.engine_http import HttpServer, Reply


class LyingProxy(HttpServer):
    """Forwards everything but loads whose label is in `swallowed`; those it answers with success.

    The label of a swallowed load is shown all the same, in /model_info and on answers.
    """

    def __init__(self, url: str) -> None:
        super().__init__(self._forward)
        self.swallowed: set[str] = set()
        self.num_loads = 0
        self._label: str | None = None
        self._http = httpx.AsyncClient(base_url=url, timeout=120, trust_env=False)

    async def stop(self) -> None:
        """Close both sides."""
        await super().stop()
        await self._http.aclose()

    async def _forward(self, method: str, path: str, body: Any) -> Reply:
        if path == "/update_weights_from_disk":
            self.num_loads += 1
            self._label = body["weight_version"] if body["weight_version"] in self.swallowed else None
            if self._label is not None:
                return 200, {"success": True, "message": "Succeeded to update model weights."}
        response = await self._http.request(method, path, json=body)
        try:
            answer = response.json()
        except ValueError:
            return response.status_code, response.text
        self._relabel(answer)
        return response.status_code, answer

    def _relabel(self, answer: Any) -> None:
        for part in answer if isinstance(answer, list) else [answer]:
            for holder in (part, part.get("meta_info")) if isinstance(part, dict) else ():
                if self._label is not None and isinstance(holder, dict) and "weight_version" in holder:
                    holder["weight_version"] = self._label
