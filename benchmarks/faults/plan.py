"""Which fault befalls which sync: a pure function of seed, transport and number."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.faults.model import BUCKETS
from benchmarks.faults.traps import AFTER, BEFORE, Trap

RECEIVER_STEPS = ("begin", "bucket", "filled", "source_done", "commit", "seal", "rename", "record", "answer")
TRAINER_STEPS = ("begin", "bucket", "source_done", "commit", "answer")
MAIL_STEPS = ("begin", "bucket", "commit")
"""A draft is made, files are written, the draft is posted."""
STORE_STEPS = ("begin", "bucket", "seal", "rename")
"""Where the disk may say no."""
SWAPPABLE = (1, 2)
"""Buckets that hold two tensors of one size."""
PAUSE_S = 0.15
SLOW_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """What befalls one sync. `kind` is for the table."""

    kind: str
    role: str = ""
    """Whose trap it is: receiver, trainer or service; empty for what the bench does itself."""
    trap: Trap | None = None

    @property
    def step(self) -> str:
        """The step of the protocol at which it is."""
        return self.trap.step if self.trap else "between"


OUTSIDE = (
    "budget full",
    "clock jumps",
    "disk full",
    "receiver is gone",
    "receiver restarts",
    "service freeze",
    "service kill",
    "service stop",
    "trainer restarts",
)
"""Faults that no transport may let reach the trainer: they are not in a sync that is in flight."""
Maker = Callable[[random.Random], Fault]
NONE = Fault(kind="none")
NEVER: tuple[int, Maker] = (0, lambda _: NONE)


def _in_receiver(action: str, steps: tuple[str, ...], seconds: float = 0.0) -> Maker:
    def make(rng: random.Random) -> Fault:
        step = rng.choice(steps)
        when = BEFORE if action in ("full", "broken") else rng.choice((BEFORE, AFTER))
        index = rng.randrange(len(BUCKETS)) if step in ("bucket", "filled") else 0
        trap = Trap(action=action, step=step, when=when, index=index, seconds=seconds)
        return Fault(kind=f"receiver {action}", role="receiver", trap=trap)

    return make


def _in_trainer(action: str, steps: tuple[str, ...], seconds: float = 0.0) -> Maker:
    def make(rng: random.Random) -> Fault:
        step = rng.choice(steps)
        when = BEFORE if step == "answer" or action in ("close", "lie") else rng.choice((BEFORE, AFTER))
        index = rng.randrange(len(BUCKETS)) if step == "bucket" else 0
        variant = rng.randrange(1 << 16)
        trap = Trap(action=action, step=step, when=when, index=index, seconds=seconds, variant=variant)
        return Fault(kind=f"trainer {action}", role="trainer", trap=trap)

    return make


def _in_bucket(action: str) -> Maker:
    def make(rng: random.Random) -> Fault:
        last = len(BUCKETS) - (1 if action == "reorder" else 0)
        step = "hand_over" if action == "drop" else "bucket"
        trap = Trap(action=action, step=step, index=rng.randrange(last), variant=rng.randrange(1 << 16))
        return Fault(kind=action, role="trainer", trap=trap)

    return make


def _in_payload(action: str, seconds: float = 0.0) -> Maker:
    def make(rng: random.Random) -> Fault:
        index = rng.choice(SWAPPABLE) if action == "swap" else rng.randrange(len(BUCKETS))
        variant = rng.randrange(1 << 16)
        trap = Trap(action=action, step="payload", index=index, seconds=seconds, variant=variant)
        return Fault(kind=action, role="trainer", trap=trap)

    return make


def _in_service(action: str, step: str = "collect") -> Maker:
    def make(rng: random.Random) -> Fault:
        trap = Trap(action=action, step=step, when=rng.choice((BEFORE, AFTER)))
        return Fault(kind=f"service {action}", role="service", trap=trap)

    return make


def _by_bench(kind: str) -> Maker:
    return lambda _: Fault(kind=kind)


def _jump(rng: random.Random) -> Fault:
    seconds = rng.choice((-86400.0, -3600.0, 3600.0, 86400.0))
    role = rng.choice(("receiver", "trainer"))
    step = rng.choice(("begin", "commit"))
    return Fault(kind="clock jumps", role=role, trap=Trap(action="clock", step=step, seconds=seconds))


COMMON: dict[str, tuple[int, Maker]] = {
    "none": (24, lambda _: NONE),
    "receiver kill": (8, _in_receiver("kill", RECEIVER_STEPS)),
    "receiver stop": (7, _in_receiver("stop", RECEIVER_STEPS, PAUSE_S)),
    "receiver freeze": (2, _in_receiver("freeze", RECEIVER_STEPS)),
    "receiver slow": (4, _in_receiver("slow", RECEIVER_STEPS, SLOW_S)),
    "receiver full": (4, _in_receiver("full", STORE_STEPS)),
    "receiver broken": (2, _in_receiver("broken", STORE_STEPS)),
    "trainer kill": (4, _in_trainer("kill", TRAINER_STEPS)),
    "trainer stop": (5, _in_trainer("stop", TRAINER_STEPS, PAUSE_S)),
    "trainer freeze": (2, _in_trainer("freeze", TRAINER_STEPS)),
    "trainer slow": (5, _in_trainer("slow", TRAINER_STEPS, SLOW_S)),
    "trainer close": (4, _in_trainer("close", ("bucket", "source_done", "commit"))),
    "corrupt": (3, _in_payload("corrupt")),
    "short": (2, _in_payload("short")),
    "long": (2, _in_payload("long")),
    "swap": (3, _in_payload("swap")),
    "stale": (2, _in_payload("stale")),
    "repeat": (2, _in_bucket("repeat")),
    "reorder": (2, _in_bucket("reorder")),
    "drop": (2, _in_bucket("drop")),
    "trainer lie": (5, _in_trainer("lie", ("begin", "bucket", "source_done", "commit"))),
    "budget full": (2, _by_bench("budget full")),
    "disk full": (2, _by_bench("disk full")),
    "trainer restarts": (2, _by_bench("trainer restarts")),
    "receiver restarts": (1, _by_bench("receiver restarts")),
    "receiver is gone": (1, _by_bench("receiver is gone")),
    "service kill": (2, _in_service("kill")),
    "service stop": (2, _in_service("stop")),
    "service freeze": (1, _in_service("freeze")),
    "clock jumps": (3, _jump),
}
OWN: dict[str, dict[str, tuple[int, Maker]]] = {
    "ray": {
        "lost": (2, _in_payload("lost")),
        "late": (2, _in_payload("late", 5.0)),
        "delayed": (2, _in_payload("late", SLOW_S)),
    },
    "nccl": {},
    "disk": {
        "trainer kill": (4, _in_trainer("kill", MAIL_STEPS)),
        "trainer stop": (5, _in_trainer("stop", MAIL_STEPS, PAUSE_S)),
        "trainer freeze": (2, _in_trainer("freeze", MAIL_STEPS)),
        "trainer slow": (5, _in_trainer("slow", MAIL_STEPS, SLOW_S)),
        "trainer lie": (4, _in_trainer("lie", ("source_done",))),
        "lost": (2, _in_payload("lost")),
        "late": NEVER,
        "trainer close": NEVER,
        "reorder": NEVER,
    },
}
"""Transport -> what can befall it alone."""


def kinds(transport: str) -> dict[str, tuple[int, Maker]]:
    """Kind of fault -> weight and maker."""
    return {**COMMON, **OWN.get(transport, {})}


def fault(seed: int, transport: str, number: int, only: tuple[str, ...] = ()) -> Fault:
    """The fault of a sync; `only` keeps the kinds of these names."""
    rng = random.Random(f"{seed}/{transport}/{number}")
    table = {
        name: entry for name, entry in kinds(transport).items() if entry[0] and (not only or name in only)
    }
    name = rng.choices(list(table), [weight for weight, _ in table.values()])[0]
    return table[name][1](rng)
