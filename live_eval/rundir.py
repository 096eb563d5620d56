"""Where the files of a run are.

One directory holds all that a run leaves behind; nothing else in live_eval spells these names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from live_eval.errors import ConfigError

SERVICE_SOCKET = "service.sock"
RECEIVER_SOCKET = "receiver.sock"
"""Names for live_eval.channel.socket_path."""


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths below one run's directory; making it does not touch the disk."""

    root: Path

    @property
    def config(self) -> Path:
        """The service's resolved configuration."""
        return self.root / "config.json"

    @property
    def store(self) -> Path:
        """The version store: catalogue and version directories."""
        return self.root / "store"

    @property
    def catalogue(self) -> Path:
        """The store's database."""
        return self.store / "catalogue.sqlite"

    @property
    def ledger(self) -> Path:
        """The results database."""
        return self.root / "ledger.sqlite"

    @property
    def samples(self) -> Path:
        """Folder of the jobs' samples."""
        return self.root / "samples"

    @property
    def results_jsonl(self) -> Path:
        """All results, one JSON object a line."""
        return self.root / "results.jsonl"

    @property
    def wandb(self) -> Path:
        """Folder in which wandb keeps its own `wandb/` folder."""
        return self.root

    @property
    def engines(self) -> Path:
        """What the engine group writes for its own use."""
        return self.root / "engines"

    @property
    def logs(self) -> Path:
        """One log file a process."""
        return self.root / "logs"

    @property
    def http_url(self) -> Path:
        """Address of the HTTP API, while it is served."""
        return self.root / "http.url"

    @property
    def activity(self) -> Path:
        """What the engines did when, one JSON object a span."""
        return self.root / "activity.jsonl"

    @property
    def base(self) -> Path:
        """The checkpoint from which training starts."""
        return self.root / "base"

    @property
    def data(self) -> Path:
        """Eval sets made for this run."""
        return self.root / "data"

    @property
    def plot(self) -> Path:
        """Score by policy version, as a picture."""
        return self.root / "score.png"

    @property
    def trainer_records(self) -> Path:
        """What each sync cost the trainer, one JSON object a line."""
        return self.root / "trainer.jsonl"

    @property
    def folders(self) -> tuple[Path, ...]:
        """Those that `make` creates below the directory."""
        return (self.samples, self.logs, self.data, self.engines)

    def make(self) -> None:
        """Create the folders that processes write to; ConfigError if the place cannot be written."""
        try:
            for folder in (self.root, *self.folders):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"cannot create {error.filename}: {error.strerror}; give another directory"
            ) from error
