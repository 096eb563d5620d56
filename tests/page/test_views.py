"""What each view shows, on both screens, in both schemes, and with texts that try to be more than text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fakes.browser import WIDTHS, expect
from fakes.page_scenes import busy_run, checkpoint_run, empty_run, hostile_run, sampled_run

if TYPE_CHECKING:
    from conftest import Open
    from fakes.browser import Tab

pytestmark = pytest.mark.browser

ROUTES = {
    "#/": "Time lane",
    "#/jobs": "Superseded",
    "#/versions": "Discarded",
    "#/compare?left=v8%2Frev&right=v9%2Frev": "95 % interval",
    "#/job/v6%2Fsort": "Measured before the end",
}
"""View -> a word that is there once it is drawn."""


def open_view(tab: Tab, route: str) -> None:
    tab.go(route)
    expect(tab.page.locator("main")).to_contain_text(ROUTES[route])


def test_the_overview_says_what_is_scored_what_runs_and_what_waits(show: Open) -> None:
    tab, _ = show(busy_run)
    page = tab.page
    figures = page.locator(".figure")
    expect(figures.filter(has_text="Stable version")).to_contain_text("v11")
    expect(figures.filter(has_text="Running")).to_contain_text("sort 41 of 64")
    expect(figures.filter(has_text="Waiting")).to_contain_text("v11")
    rev, sort = page.locator('[data-dataset="rev"]'), page.locator('[data-dataset="sort"]')
    expect(rev.locator(".big")).to_have_text("0.984")
    expect(rev.locator(".interval")).to_have_text("95 %: 0.916 to 0.997")
    expect(sort).to_contain_text("v10 runs, 41 of 64: 0.976 so far")
    expect(sort.locator(".live-whisker")).to_have_count(1)
    expect(page.get_by_role("link", name="v10", exact=True).first).to_be_visible()


def test_a_difference_to_the_version_before_says_how_sure_it_is(show: Open) -> None:
    tab, _ = show(busy_run)
    rev = tab.page.locator('[data-dataset="rev"]')
    expect(rev).to_contain_text("+0.031 to v9 (\N{MINUS SIGN}0.019 to 0.081: may be chance)")
    tab.go("#/job/v5%2Frev")
    expect(tab.page.locator("main")).to_contain_text("+0.391 to v3 (0.341 to 0.441)")
    names = tab.page.locator("main table code")
    expect(names).to_have_text(["pass@2", "pass@16", "response_tokens", "score", "truncated"])


def test_a_score_of_which_samples_are_missing_is_drawn_hollow_and_says_so(show: Open) -> None:
    tab, _ = show(busy_run)
    rev, sort = tab.page.locator('[data-dataset="rev"]'), tab.page.locator('[data-dataset="sort"]')
    expect(rev.locator("path.holes")).to_have_count(1)
    expect(rev).to_contain_text("60 of 64 samples scored")
    expect(rev).to_contain_text("hollow: not all samples scored")
    expect(sort.locator("path.dots")).to_have_count(1)
    expect(sort.locator("path.holes")).to_have_count(0)


def test_each_of_several_samples_of_a_row_has_its_number(show: Open) -> None:
    tab, _ = show(sampled_run)
    tab.go("#/job/v1%2Frev")
    heads = tab.page.locator(".sample-head")
    expect(heads.first).to_contain_text("Row 0sample 0")
    expect(heads.nth(1)).to_contain_text("Row 0sample 1")


def test_without_a_trainer_the_overview_speaks_of_checkpoints(show: Open) -> None:
    tab, _ = show(checkpoint_run)
    figures = tab.page.locator(".figure")
    expect(figures.filter(has_text="Newest score")).to_contain_text("c1")
    expect(figures.filter(has_text="Newest score")).to_contain_text("step_100 on rev")
    expect(figures.filter(has_text="Waiting")).not_to_contain_text("newer version")
    expect(figures.filter(has_text="Running")).to_contain_text("2 evaluations")
    expect(figures.filter(has_text="Running")).to_contain_text("c2/rev 10 of")
    card = tab.page.locator('[data-dataset="rev"]')
    expect(card.locator(".live-whisker")).to_have_count(2)
    expect(card).to_contain_text("c2 runs, 10 of")
    expect(card).to_contain_text("c3 runs, 20 of")
    expect(card.locator(".live-line")).to_have_count(0)


def test_keys_walk_through_the_scores_and_open_the_job(show: Open) -> None:
    tab, _ = show(busy_run)
    chart = tab.page.locator('[data-dataset="sort"] svg.plot')
    chart.focus()
    for key in ("End", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
        chart.press(key)
    card = tab.page.locator('[data-dataset="sort"]')
    expect(card.locator(".big")).to_have_text("Cancelled")
    expect(card.locator(".interval")).to_have_text("a newer version came")
    chart.press("Enter")
    expect(tab.page.get_by_role("heading", level=1)).to_have_text("v6 on sort")


def test_the_lane_shows_the_end_of_each_version_and_says_it(show: Open) -> None:
    tab, _ = show(busy_run)
    lane = tab.page.locator("svg.lane[tabindex]")
    expect(lane.locator(".job.cancelled")).to_have_count(1)
    expect(lane.locator(".sync.discarded")).to_have_count(1)
    expect(lane.locator(".icon-superseded, .end-mark")).not_to_have_count(0)
    lane.focus()
    seen = set()
    for _ in range(12):
        lane.press("ArrowLeft")
        seen.add(tab.page.locator(".readout").inner_text())
    assert any(text.startswith("v7:") and "superseded: a newer version came" in text for text in seen), seen
    assert any(text.startswith("v6:") and "sort cancelled: a newer version came" in text for text in seen)
    assert any(text.startswith("v9:") and "waited" in text for text in seen)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_view_has_to_be_scrolled_sideways(show: Open, width: int) -> None:
    tab, _ = show(busy_run, width=width)
    for route in ROUTES:
        open_view(tab, route)
        assert tab.overflow() == [], route


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(show: Open, scheme: Any) -> None:
    tab, _ = show(busy_run, scheme=scheme)
    for route in ROUTES:
        open_view(tab, route)
        assert tab.faint_texts() == [], route
    page = tab.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert page == ("rgb(15, 18, 22)" if scheme == "dark" else "rgb(246, 247, 249)")


def test_every_state_has_a_shape_and_a_word(show: Open) -> None:
    tab, _ = show(busy_run)
    for route in ROUTES:
        open_view(tab, route)
        badges = tab.page.locator("main .badge").evaluate_all(
            "all => all.map(each => [each.querySelector('svg.icon')?.innerHTML ?? '', each.textContent])"
        )
        assert all(shape and word for shape, word in badges), (route, badges)


def test_hostile_texts_stay_texts(show: Open) -> None:
    tab, _ = show(hostile_run)
    for route, says in (
        ("#/", "Time lane"),
        ("#/jobs", "<script>"),
        ("#/versions", "<script>"),
        ("#/job/v2%2Frev", "<script>"),
        ("#/job/%3Cimg%20src=x%20onerror=hacked=1%3E", "there is no job"),
        ("#/compare?left=v1%2Frev&right=v2%2Frev", "<script>"),
    ):
        tab.go(route)
        expect(tab.page.locator("main")).to_contain_text(says)
        assert tab.page.locator("main img, main script").count() == 0, route
        assert tab.page.evaluate("window.hacked") is None, route
        assert tab.overflow() == [], route
    expect(tab.page.locator(".ctl", has_text="U+202E").first).to_be_visible()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_service_that_has_done_nothing_yet_says_so(show: Open, width: int) -> None:
    tab, _ = show(empty_run, width=width)
    for route, says in (
        ("#/", "The engines are starting"),
        ("#/jobs", "No job fits"),
        ("#/versions", "No sync has come yet"),
        ("#/compare", "Two versions with samples"),
    ):
        tab.go(route)
        expect(tab.page.locator("main")).to_contain_text(says)
        assert tab.overflow() == [], route
    expect(tab.page.get_by_role("button", name="Evaluate checkpoint")).to_be_disabled()
