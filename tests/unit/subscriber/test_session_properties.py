"""Whatever comes in whatever order: one verdict that never changes, and a seal only for a whole sync."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from fakes.sync import DOWN, EMBED, MODEL, NORM, UP, begin, bucket, commit, done, expected_tensors
from hypothesis import given, settings
from hypothesis import strategies as st

from live_eval.reasons import DiscardReason
from live_eval.subscriber.expected import SyncFault
from live_eval.subscriber.session import SyncSession
from protocol.messages import TensorMeta

SOURCES = ("pp_0", "pp_1")
DEADLINE_S = 100.0
OF = begin(5, sources=SOURCES)
ODD = TensorMeta(UP.name, "float32", (2, 8))


@dataclass(frozen=True)
class Announce:
    """A bucket's header."""

    source: str
    index: int
    tensors: tuple[TensorMeta, ...]
    weight_version: int = 5


@dataclass(frozen=True)
class Arrive:
    """A bucket's bytes."""

    source: str
    index: int
    salt: str = ""


@dataclass(frozen=True)
class Done:
    """The end of a source."""

    source: str
    num_buckets: int


@dataclass(frozen=True)
class Commit:
    """The commit."""

    weight_version: int = 5


@dataclass(frozen=True)
class Pass:
    """Time goes by."""

    seconds: float


Event = Announce | Arrive | Done | Commit | Pass | DiscardReason

# Right in this order, with whatever the strategies put between, leave out or repeat.
WHOLE: list[Event] = [
    Announce("pp_0", 0, (EMBED, UP)),
    Announce("pp_1", 0, (DOWN, EMBED)),
    Arrive("pp_1", 0),
    Arrive("pp_0", 0),
    Announce("pp_1", 1, (NORM,)),
    Arrive("pp_1", 1),
    Done("pp_0", 1),
    Commit(),
    Done("pp_1", 2),
]
EXTRA: list[Event] = [
    *WHOLE,
    Announce("pp_0", 1, (ODD,)),
    Announce("pp_0", 1, ()),
    Announce("pp_9", 0, (UP,)),
    Announce("pp_0", 0, (UP,), weight_version=6),
    Arrive("pp_0", 0, salt="other"),
    Done("pp_1", 1),
    Commit(6),
    Pass(1.0),
    Pass(DEADLINE_S + 1),
    DiscardReason.PUBLISHER_ABORTED,
]


def apply(session: SyncSession, event: Event, now: float) -> float:
    """Let it happen; the time after it."""
    match event:
        case Announce():
            header = bucket(
                OF, event.index, *event.tensors, source=event.source, weight_version=event.weight_version
            )
            with contextlib.suppress(SyncFault):
                session.on_bucket(header, now=now)
        case Arrive():
            names = next(
                [tensor.name for tensor in known.tensors]
                for known in WHOLE
                if isinstance(known, Announce) and (known.source, known.index) == (event.source, event.index)
            )
            with contextlib.suppress(SyncFault):
                session.on_bucket_bytes(
                    event.source, event.index, [name + event.salt for name in names], now=now
                )
        case Done():
            session.on_source_done(done(OF, event.num_buckets, source=event.source), now=now)
        case Commit():
            session.on_commit(commit(OF, event.weight_version), now=now)
        case Pass():
            now += event.seconds
            session.on_tick(now)
        case reason:
            session.on_fault(reason, "by hand")
    return now


def play(events: list[Event]) -> SyncSession:
    session = SyncSession(expected_tensors(), begin=OF, now=0.0, deadline_s=DEADLINE_S)
    now, verdict = 0.0, None
    for event in events:
        now = apply(session, event, now)
        if verdict is not None:
            assert session.verdict is verdict
        verdict = session.verdict
        if verdict is not None:
            assert verdict.seal == (verdict.reason is None)
            assert verdict.seal or verdict.detail
    return session


def is_whole(events: list[Event]) -> bool:
    """Whether these are exactly the events of a whole sync, in an order that is one."""
    real = [event for event in events if not isinstance(event, Pass)]
    if sorted(map(repr, real)) != sorted(map(repr, WHOLE)):
        return False

    def before(first: Event, second: Event) -> bool:
        return real.index(first) < real.index(second)

    for source, number in (("pp_0", 1), ("pp_1", 2)):
        ended = Done(source, number)
        for index in range(number):
            announced = next(
                e for e in WHOLE if isinstance(e, Announce) and (e.source, e.index) == (source, index)
            )
            if not (before(announced, Arrive(source, index)) and before(Arrive(source, index), ended)):
                return False
            if index and not before(
                next(
                    e for e in WHOLE if isinstance(e, Announce) and (e.source, e.index) == (source, index - 1)
                ),
                announced,
            ):
                return False
    return not any(isinstance(event, Pass) and event.seconds > DEADLINE_S for event in events)


def test_the_whole_sync_of_these_tests_is_sealed() -> None:
    verdict = play(WHOLE).verdict
    assert verdict is not None
    assert verdict.seal


@settings(max_examples=400, deadline=None)
@given(st.permutations(WHOLE))
def test_an_order_is_sealed_if_and_only_if_it_is_one(events: list[Event]) -> None:
    verdict = play(events).verdict
    assert (verdict is not None and verdict.seal) == is_whole(events)


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(EXTRA), max_size=24))
def test_no_mixture_of_events_gives_a_second_verdict_or_a_seal_of_less_than_the_model(
    events: list[Event],
) -> None:
    session = play(events)
    if session.verdict is not None and session.verdict.seal:
        assert set(session.digests) == {tensor.name for tensor in MODEL}
        assert session.committed


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_one_thing_wrong_in_a_whole_sync_is_never_sealed(data: st.DataObject) -> None:
    wrong = data.draw(
        st.sampled_from([event for event in EXTRA if event not in WHOLE and event != Pass(1.0)])
    )
    place = data.draw(st.integers(0, len(WHOLE) - 1))
    events = [*WHOLE[:place], wrong, *WHOLE[place:]]
    verdict = play(events).verdict
    assert verdict is not None
    assert not verdict.seal


@settings(max_examples=100, deadline=None)
@given(st.integers(0, len(WHOLE) - 1))
def test_one_thing_missing_from_a_whole_sync_is_never_sealed(missing: int) -> None:
    session = play([*WHOLE[:missing], *WHOLE[missing + 1 :], Pass(DEADLINE_S + 1)])
    assert session.verdict is not None
    assert not session.verdict.seal
