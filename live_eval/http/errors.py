"""Errors as the API tells them: what is wrong, with which value, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from live_eval.errors import (
    CONVERT_IT,
    AlreadyEnded,
    ConfigError,
    CorruptVersion,
    LiveEvalError,
    NoSuchJob,
    NoSuchVersion,
)

MAX_VALUE_CHARS = 1000


class ApiError(LiveEvalError):
    """A request that is not carried out."""

    def __init__(
        self,
        status: int,
        code: str,
        what: str,
        *,
        value: Any = None,
        what_to_do: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(what)
        self.status = status
        self.code = code
        self.value = value
        self.what_to_do = what_to_do
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The answer's JSON object."""
        return {
            "error": {
                "code": self.code,
                "what": str(self),
                "value": shortened(self.value),
                "what_to_do": self.what_to_do,
            }
        }


def shortened(value: Any) -> Any:
    """A value that is safe to send back: numbers and short texts as they are, the rest as short text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key)[:100]: shortened(each) for key, each in list(value.items())[:20]}
    text = value if isinstance(value, str) else repr(value)
    return text[:MAX_VALUE_CHARS].encode("utf-8", "replace").decode("utf-8")


def told(error: LiveEvalError, *, value: Any = None) -> ApiError:
    """What the service raised, as the API tells it."""
    if isinstance(error, ApiError):
        return error
    text = str(error)
    for kind, status, advice in (
        (NoSuchJob, 404, "GET /api/v1/jobs lists the jobs"),
        (AlreadyEnded, 409, "nothing: it stays as it is"),
        (NoSuchVersion, 404, "GET /api/v1/versions lists the versions"),
        (
            CorruptVersion,
            422,
            _advice(text, "give the directory of a whole Hugging Face safetensors checkpoint"),
        ),
        (ConfigError, 422, "GET /api/v1/status says what is configured"),
    ):
        if isinstance(error, kind):
            return ApiError(status, error.code, text, value=value, what_to_do=advice)
    return ApiError(
        500, "internal", f"{type(error).__name__}: {text}", value=value, what_to_do="see the service's log"
    )


def _advice(text: str, otherwise: str) -> str:
    """The converting command where the message has one."""
    _, found, command = text.partition(CONVERT_IT)
    return f"{found}{command}" if found else otherwise
