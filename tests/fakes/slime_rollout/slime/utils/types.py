from dataclasses import dataclass, field
from enum import Enum


@dataclass
class Sample:
    class Status(Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"

    index: int | None = None
    prompt: str = ""
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | dict | None = None
    status: Status = Status.PENDING
    weight_versions: list[str] = field(default_factory=list)
