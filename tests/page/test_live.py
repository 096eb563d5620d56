"""The page follows the service: events, breaks, tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes import page_answers
from fakes.browser import expect
from fakes.page_scenes import busy_run
from fakes.page_service import Refusal

if TYPE_CHECKING:
    from conftest import Open

pytestmark = pytest.mark.browser


def test_an_estimate_grows_and_becomes_a_score_without_a_reload(show: Open) -> None:
    tab, service = show(busy_run)
    page, world = tab.page, service.world
    page.evaluate("window.mine = 1")
    card = page.locator('[data-dataset="sort"]')
    service.push("progress", world.progress("v10/sort", 60, 0.95))
    expect(card).to_contain_text("v10 runs, 60 of 64: 0.950 so far")
    cancel = page.get_by_role("button", name="Cancel v11/rev")
    cancel.focus()
    result = world.end("v10/sort", world.now, score=0.953125)
    service.push("job", world.jobs["v10/sort"])
    service.push("result", result)
    expect(card.locator(".big")).to_have_text("0.953")
    expect(card.locator(".live")).to_have_count(0)
    expect(page.locator("#announce")).to_have_text("v10 on sort: Succeeded, 0.953")
    expect(cancel).to_be_focused()
    assert page.evaluate("window.mine") == 1


def test_jobs_and_versions_come_into_their_lists_by_themselves(show: Open) -> None:
    tab, service = show(busy_run)
    page, world = tab.page, service.world
    tab.go("#/versions")
    expect(page.locator("tbody tr").first).to_contain_text("v11")
    service.push("version", world.sync(12, world.now))
    expect(page.locator("tbody tr").first).to_contain_text("v12")
    tab.go("#/jobs")
    expect(page.locator("tbody tr").first).to_contain_text("c1")
    service.push("job", world.job("v12", "rev", world.now))
    expect(page.locator("tbody tr").first).to_contain_text("v12")
    world.start("v12/rev", world.now)
    service.push("job", world.jobs["v12/rev"])
    service.push("progress", world.progress("v12/rev", 3, 1.0))
    expect(page.locator("tbody tr").first).to_contain_text("3 of 64, so far 1.000")


def test_a_break_is_shown_and_what_was_missed_comes(show: Open) -> None:
    tab, service = show(busy_run)
    page, world = tab.page, service.world
    service.push("status", page_answers.status(world))
    service.refusals["events"] = Refusal(503, "too_many_clients", "more than 32 event streams")
    service.drop_clients()
    expect(page.get_by_role("button", name="Offline")).to_be_visible()
    banner = page.locator("#banner")
    expect(banner).to_contain_text("the service answered 503")
    expect(banner).to_contain_text("What is shown is from")
    expect(page.locator('[data-dataset="rev"] .big')).to_have_text("0.984")
    del service.refusals["events"]
    banner.get_by_role("button", name="Try now").click()
    expect(page.get_by_role("button", name="Live", exact=True)).to_be_visible()
    expect(banner).to_be_hidden()
    assert service.last_ids[-1] == "life-1"
    num_status = sum("/status" in path for _, path in service.asked)
    service.push("reset", {})
    expect(page.locator("main")).to_contain_text("Time lane")
    page.wait_for_function(
        "before => performance.getEntriesByName(new URL('api/v1/status', location).href).length > before",
        arg=num_status,
    )


def test_a_token_is_asked_for_once(show: Open) -> None:
    tab, service = show(busy_run, follows=False)
    page = tab.page
    service.token_needed = True
    service.drop_clients()
    page.reload()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("This service wants a token")
    expect(page.get_by_label("Token", exact=True)).to_be_focused()
    page.get_by_label("Token", exact=True).fill("no")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("this is not the token")
    page.get_by_label("Token", exact=True).fill("secret")
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(page.locator('[data-dataset="rev"] .big')).to_have_text("0.984")
