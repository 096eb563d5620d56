"""What live-eval knows of a dataset beyond slime's fields: the section `live_eval` of an eval file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from live_eval.errors import ConfigError


class Extras(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one dataset; None leaves what EvalSetConfig has."""

    eval_every: int | None = None
    priority: int | None = None
    timeout_s: float | None = None
    concurrency: int | None = None
    min_coverage: float | None = None
    pass_threshold: float | None = None
    id_key: str | msgspec.UnsetType | None = msgspec.UNSET
    reward_key: str | None = None
    reward_mode: str | None = None
    reward_batch_size: int | None = None
    special_tokens: bool | None = None
    seed: int | None = None

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """All settings."""
        return cls.__struct_fields__

    def given(self) -> dict[str, Any]:
        """Those that are set, `seed` left out (it is one of sampling)."""
        values = {name: getattr(self, name) for name in self.names() if name not in ("seed", "id_key")}
        found = {name: value for name, value in values.items() if value is not None}
        return found if self.id_key is msgspec.UNSET else {**found, "id_key": self.id_key}


def extras_of(section: Any, names: Sequence[str]) -> dict[str, Extras]:
    """Each dataset's, its own over `defaults`; ConfigError for a name or a setting that nobody has."""
    section = {} if section is None else section
    if not isinstance(section, Mapping) or not set(section) <= {"defaults", "datasets"}:
        raise ConfigError("live_eval: give a mapping with `defaults` and `datasets`")
    defaults = section.get("defaults") or {}
    by_name = section.get("datasets") or {}
    if not isinstance(defaults, Mapping) or not isinstance(by_name, Mapping):
        raise ConfigError("live_eval: defaults and datasets are mappings, datasets by name")
    # YAML takes the name 2024 for a number.
    own = {str(name): values or {} for name, values in by_name.items()}
    if unknown := sorted(set(own) - set(names)):
        raise ConfigError(f"live_eval.datasets: {', '.join(unknown)} is no dataset of eval.datasets")
    for name, values in own.items():
        if not isinstance(values, Mapping):
            raise ConfigError(f"live_eval, dataset {name!r}: this is {values!r}: give a mapping of settings")
    return {name: _extras(name, {**defaults, **own.get(name, {})}) for name in names}


def _extras(name: str, values: dict[str, Any]) -> Extras:
    try:
        return msgspec.convert(values, Extras)
    except msgspec.ValidationError as error:
        known = ", ".join(Extras.names())
        raise ConfigError(f"live_eval, dataset {name!r}: {error}; known are {known}") from error
