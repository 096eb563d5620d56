"""What may go goes in order; what is pinned stays; the budget holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from live_eval.store.records import DROPPABLE, CollectReason, PinKind
from live_eval.store.retention import Holding, plan

RETENTION, MAKE_ROOM, STORE_FULL = CollectReason.RETENTION, CollectReason.MAKE_ROOM, CollectReason.STORE_FULL


def held(version: int, *pins: PinKind, num_bytes: int = 10) -> Holding:
    return Holding(policy_version=version, num_bytes=num_bytes, pins=frozenset(pins))


def test_unpinned_versions_beyond_the_newest_go() -> None:
    decided = plan([held(1), held(2), held(3)], keep_newest=2, budget_bytes=100)
    assert decided.collect == ((1, RETENTION),)
    assert decided.fits


def test_pinned_versions_beyond_the_newest_stay_while_there_is_room() -> None:
    decided = plan([held(1, PinKind.FRESH), held(2), held(3)], keep_newest=1, budget_bytes=100)
    assert decided.collect == ((2, RETENTION),)


def test_a_short_budget_takes_spare_versions_before_waiting_ones_and_old_before_new() -> None:
    holdings = [held(1, PinKind.WAITING), held(2), held(3, PinKind.FRESH), held(4)]
    decided = plan(holdings, keep_newest=4, budget_bytes=40, need_bytes=30)
    assert decided.collect == ((2, MAKE_ROOM), (4, MAKE_ROOM), (1, STORE_FULL))
    assert decided.fits


def test_running_and_exported_versions_are_never_taken() -> None:
    holdings = [held(1, PinKind.RUNNING), held(2, PinKind.EXPORT), held(3, PinKind.WAITING, PinKind.RUNNING)]
    decided = plan(holdings, keep_newest=1, budget_bytes=30, need_bytes=10)
    assert decided.collect == ()
    assert not decided.fits


def test_nothing_that_waits_is_given_up_for_a_version_that_would_not_fit_anyway() -> None:
    holdings = [held(1), held(2, PinKind.WAITING), held(3, PinKind.RUNNING)]
    decided = plan(holdings, keep_newest=2, budget_bytes=30, need_bytes=25)
    assert decided.collect == ((1, RETENTION),)
    assert not decided.fits


def test_bytes_that_cannot_go_count() -> None:
    assert not plan([], keep_newest=1, budget_bytes=30, other_bytes=21, need_bytes=10).fits
    assert plan([], keep_newest=1, budget_bytes=30, other_bytes=20, need_bytes=10).fits


HOLDINGS = st.dictionaries(
    st.integers(1, 30),
    st.tuples(st.integers(0, 50), st.frozensets(st.sampled_from(PinKind), max_size=2)),
    max_size=12,
).map(
    lambda found: [Holding(policy_version=v, num_bytes=size, pins=pins) for v, (size, pins) in found.items()]
)
NUMBER = st.integers(0, 300)


@given(HOLDINGS, st.integers(1, 5), NUMBER, NUMBER, NUMBER)
def test_any_plan_keeps_what_is_pinned_and_the_budget(
    holdings: list[Holding], keep_newest: int, budget: int, other: int, need: int
) -> None:
    decided = plan(holdings, keep_newest=keep_newest, budget_bytes=budget, other_bytes=other, need_bytes=need)
    by_version = {holding.policy_version: holding for holding in holdings}
    gone = dict(decided.collect)
    newest = set(sorted(by_version)[-keep_newest:])

    assert len(gone) == len(decided.collect)
    assert gone.keys() <= by_version.keys()
    left = sum(holding.num_bytes for version, holding in by_version.items() if version not in gone)
    assert decided.fits == (left + other + need <= budget)
    for version, reason in gone.items():
        pins = by_version[version].pins
        assert pins <= DROPPABLE
        assert (reason is STORE_FULL) == bool(pins)
        assert (reason is RETENTION) == (not pins and version not in newest)
    for version, holding in by_version.items():
        assert version in gone or holding.pins or version in newest


@given(HOLDINGS, st.integers(1, 5), NUMBER, NUMBER, NUMBER)
def test_any_plan_takes_no_more_than_it_must_and_never_refuses_what_could_fit(
    holdings: list[Holding], keep_newest: int, budget: int, other: int, need: int
) -> None:
    decided = plan(holdings, keep_newest=keep_newest, budget_bytes=budget, other_bytes=other, need_bytes=need)
    by_version = {holding.policy_version: holding for holding in holdings}
    firm = sum(holding.num_bytes for holding in holdings if not holding.pins <= DROPPABLE)
    assert decided.fits == (firm + other + need <= budget)

    extra = [version for version, reason in decided.collect if reason is not RETENTION]
    left = sum(h.num_bytes for h in holdings if h.policy_version not in dict(decided.collect))
    if extra:  # without the last one it would not fit
        assert left + by_version[extra[-1]].num_bytes + other + need > budget
