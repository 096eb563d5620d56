"""The configuration of a service: one JSON file, read strictly, written beside the results.

It puts the parts' own settings together and knows nothing of what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path

import msgspec

from live_eval.errors import ConfigError
from live_eval.evaluation.datasets import EvalSetConfig  # noqa: TC001
from live_eval.evaluation.job import RunLimits, job_timeout_of
from live_eval.results.wandb_sink import WandbConfig  # noqa: TC001
from live_eval.scheduling.config import SchedulerConfig  # noqa: TC001

MIN_TOKEN = 16
"""Characters of an HTTP token."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreSettings:
    """How much the version store keeps."""

    max_bytes: int
    """Bound on all versions together, the one being received included."""
    keep_newest: int = 3
    """Of versions that nobody needs, the newest so many stay."""
    allowed_absent: tuple[str, ...] = ()
    """Shell patterns of tensors that a sync need not carry, for example `model.mtp.*`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSettings:
    """The eval engines."""

    num_engines: int = 1
    """Servers to launch; ignored where addresses are given."""
    addresses: tuple[str, ...] = ()
    """Running servers to attach to, for example `http://127.0.0.1:30000`."""
    device: str = "cuda"
    """`cpu` for the embedded engine."""
    dtype: str | None = None
    """None: the checkpoint's own."""
    tp_size: int = 1
    extra_args: tuple[str, ...] = ()
    """Further arguments of the SGLang server."""
    python: Path | None = None
    """Interpreter of the environment that has the engines' SGLang; None: the service's own."""
    usable_timeout_s: float = 900.0
    """Longest wait for one engine that can serve, at the start and before a load."""

    def __post_init__(self) -> None:
        if self.usable_timeout_s <= 0:
            raise ConfigError(f"usable_timeout_s is {self.usable_timeout_s}: give more than 0")
        if self.num_engines < 1:
            raise ConfigError(f"num_engines is {self.num_engines}: give 1 or more")
        if self.tp_size < 1:
            raise ConfigError(f"tp_size is {self.tp_size}: give 1 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpSettings:
    """The HTTP API and the page; docs/http_api.md says what they answer."""

    host: str = "127.0.0.1"
    """Name or address to listen on; other than a loopback one it needs a token."""
    port: int = 0
    """0: any that is free; the run directory's http.url says which."""
    token: str | None = field(default=None, repr=False)
    """Whoever has it may read and change everything; None: any process of this host may."""
    checkpoint_roots: tuple[Path, ...] = ()
    """Checkpoints may be submitted from below these directories, links followed; empty: none over HTTP."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"the HTTP port is {self.port}: give 0 to 65535 (0: any that is free)")
        if not self.is_loopback and self.token is None:
            raise ConfigError(
                f"the HTTP API would listen on {self.host!r}, where other hosts reach it: give a token, "
                "or listen on 127.0.0.1"
            )
        if self.token is not None and len(self.token) < MIN_TOKEN:
            raise ConfigError(
                f"the HTTP token has {len(self.token)} characters: give {MIN_TOKEN} or more, "
                "for example from `openssl rand -hex 16`"
            )
        for root in self.checkpoint_roots:
            if not root.is_absolute():
                raise ConfigError(f"checkpoint_roots has {root}: give absolute paths")

    @property
    def is_loopback(self) -> bool:
        """Whether only this host reaches it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a name or an address, brackets or not, can only mean this host."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceConfig:
    """Everything a service needs to know."""

    run_id: str
    run_dir: Path
    base: Path
    """The checkpoint from which training starts: what every sync must carry, and what engines are started
    with."""
    datasets: tuple[EvalSetConfig, ...]
    scheduler: SchedulerConfig
    store: StoreSettings
    engines: EngineSettings = field(default_factory=EngineSettings)
    limits: RunLimits = field(default_factory=RunLimits)
    wandb: WandbConfig | None = None
    """None: no W&B run."""
    http: HttpSettings | None = None
    """None: no HTTP API."""
    checkpoint_watch: tuple[Path, ...] = ()
    """Folders of which each whole checkpoint is evaluated once, in the order of their numbers."""
    num_graders: int = 2
    """Worker processes for reward functions."""
    reward_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        names = tuple(dataset.name for dataset in self.datasets)
        if names != self.scheduler.datasets:
            raise ConfigError(f"datasets are {names}, but the scheduler has {self.scheduler.datasets}")

    @property
    def schedule(self) -> SchedulerConfig:
        """The scheduler's settings with what the datasets say of themselves: order, cycle, time limits."""
        ordered = sorted(self.datasets, key=lambda dataset: -dataset.priority)
        limits = {dataset.name: job_timeout_of(dataset, self.limits) for dataset in ordered}
        return replace(
            self.scheduler,
            datasets=tuple(dataset.name for dataset in ordered),
            num_engines=len(self.engines.addresses) or self.engines.num_engines,
            eval_every={each.name: each.eval_every for each in ordered if each.eval_every > 1},
            job_timeouts={name: limit for name, limit in limits.items() if limit is not None},
        )

    def save(self, path: Path) -> None:
        """Write the resolved configuration, indented for people."""
        text = msgspec.json.format(msgspec.json.encode(self, enc_hook=str), indent=2)
        if self.http is not None and self.http.token is not None:
            path.touch()
            path.chmod(0o600)  # before the token is in it
        path.write_bytes(text)

    @classmethod
    def load(cls, path: Path) -> ServiceConfig:
        """Read what `save` wrote; ConfigError names the field that is missing or wrong."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls, dec_hook=_decode)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ConfigError(f"{path}: {error}") from error


def _decode(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    raise NotImplementedError(f"{kind} cannot be read from JSON")
