"""Parts of the page that only compute: what differs between texts, events in pieces, numbers for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fakes.page_scenes import empty_run

if TYPE_CHECKING:
    from conftest import Open

pytestmark = pytest.mark.browser

TEXTS = ["", "a", "cba", "abc", "the cat sat", "the dog sat", "  the cat\n", "\U0001f600 x", "x" * 20_000]


def test_both_sides_of_a_difference_are_the_texts_and_share_what_is_the_same(show: Open) -> None:
    tab, _ = show(empty_run)
    pairs = [[left, right] for left in TEXTS for right in TEXTS]
    found: list[Any] = tab.page.evaluate(
        "async pairs => { const { diff } = await import('/diff.js');"
        " return pairs.map(([left, right]) => diff(left, right)); }",
        pairs,
    )
    for (left, right), sides in zip(pairs, found, strict=True):
        assert ["".join(text for _, text in side) for side in sides] == [left, right]
        same = ["".join(text for kind, text in side if kind == "same") for side in sides]
        assert same[0] == same[1]
        if left == right:
            assert all(kind == "same" for side in sides for kind, _ in side)
    cat, dog = found[pairs.index(["the cat sat", "the dog sat"])]
    assert cat == [["same", "the "], ["other", "cat"], ["same", " sat"]]
    assert dog == [["same", "the "], ["other", "dog"], ["same", " sat"]]


def test_two_long_texts_do_not_hold_the_page_up(show: Open) -> None:
    tab, _ = show(empty_run)
    took = tab.page.evaluate(
        "async () => { const { diff } = await import('/diff.js');"
        " const text = (seed) => Array.from({ length: 20000 }, (_, i) => (i * seed) % 97).join(' ');"
        " const [one, other, took] = [text(3), text(5), []];"
        " for (let time = 0; time < 3; time++) {"  # one of them is disturbed by nothing else
        "   const began = performance.now(); diff(one, other); took.push(performance.now() - began); }"
        " return Math.min(...took); }"
    )
    assert took < 1000


def test_each_engine_shows_the_checkpoint_that_it_held_while_two_ran_side_by_side(show: Open) -> None:
    tab, _ = show(empty_run)
    found = tab.page.evaluate(
        "async () => { const { laneRows } = await import('/lane_rows.js');"
        " const held = (target, begin, end) => ({ kind: 'eval', target, begin, end, outcome: '' });"
        " const job = (target, begin, end) => ({ job_id: `${target}/a`, target, dataset: 'a', attempt: 1,"
        "   requested: 0, begin, end, status: 'succeeded', reason: 'completed' });"
        " const lane = { syncs: [], jobs: [job('c1', 2, 8), job('c2', 3, 6), job('c3', 7, 9)], engines: ["
        "   { name: 'e0', spans: [held('c1', 1, 8)] },"
        "   { name: 'e1', spans: [held('c2', 2, 6), held('c3', 6, null)] } ] };"
        " return laneRows(lane, [], 10).engines.map(({ name, spans }) =>"
        "   [name, spans.filter((each) => each.inner).map((each) => [each.text, each.begin, each.end])]); }"
    )
    assert found == [["e0", [["c1 a", 2, 8]]], ["e1", [["c2 a", 3, 6], ["c3 a", 7, 9]]]]


def test_events_are_read_however_they_are_cut(show: Open) -> None:
    tab, _ = show(empty_run)
    stream = ': hi\r\nretry: 2000\n\nid: 1\nevent: job\ndata: {"a":\ndata: 1}\n\n\rdata:x\r\revent: lost\n'
    found = tab.page.evaluate(
        "async stream => { const { Parser } = await import('/events.js'); const all = [];"
        " for (let size = 1; size < 9; size += 1) { const got = [];"
        " const parser = new Parser(e => got.push(e));"
        " for (let at = 0; at < stream.length; at += size) parser.feed(stream.slice(at, at + size));"
        " all.push(got); } return all; }",
        stream,
    )
    job = {"id": "1", "name": "job", "data": '{"a":\n1}'}
    assert found == [[job, {"id": "", "name": "message", "data": "x"}]] * 8


def test_numbers_are_written_as_people_read_them(show: Open) -> None:
    tab, _ = show(empty_run)
    found = tab.page.evaluate(
        "async () => { const f = await import('/format.js'); return ["
        "f.score(-0.0001), f.score(null), f.signed(0.03125), f.signed(-0.5), f.duration(0.04),"
        " f.duration(121), f.duration(3725), f.bytes(0), f.bytes(999_600), f.bytes(1_511_936),"
        " f.bytes(null)]; }"
    )
    minus = "\u2212"
    assert found == [
        *("0.000", "\u2013", "+0.031", f"{minus}0.500", "40 ms", "2 min 01 s"),
        *("1 h 02 min", "0 B", "1.0 MB", "1.5 MB", "\u2013"),
    ]
