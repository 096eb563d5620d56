"""What a person does with the page: cancel, submit, compare; with the pointer and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.browser import expect
from fakes.page_scenes import busy_run
from fakes.page_service import Refusal

if TYPE_CHECKING:
    from conftest import Open
    from fakes.page_world import World

pytestmark = pytest.mark.browser


def test_a_cancel_is_asked_about_then_told_to_the_service(show: Open) -> None:
    tab, service = show(busy_run)
    page = tab.page
    page.get_by_role("button", name="Cancel v10/sort").click()
    dialog = page.get_by_role("dialog", name="Cancel v10/sort?")
    expect(dialog).to_contain_text("It has 41 of 64 samples")
    expect(dialog.get_by_role("button", name="Let it run")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Cancel v10/sort")).to_be_focused()
    assert service.posted == []
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("#toasts")).to_contain_text("v10/sort is being stopped")
    expect(dialog).to_have_count(0)
    assert service.posted == [("cancel", {"job_id": "v10/sort"})]


def test_a_cancel_that_comes_too_late_says_so(show: Open) -> None:
    tab, service = show(busy_run)
    service.refusals["cancel"] = Refusal(
        409, "already_ended", "v11/rev has ended", "superseded: newer_version", "nothing: it stays as it is"
    )
    tab.page.get_by_role("button", name="Cancel v11/rev").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel the job").click()
    alert = dialog.get_by_role("alert")
    for text in ("v11/rev has ended", "superseded: newer_version", "nothing: it stays as it is"):
        expect(alert).to_contain_text(text)
    dialog.get_by_role("button", name="Let it wait").click()
    expect(dialog).to_have_count(0)


def test_a_checkpoint_is_submitted_by_keys_alone(show: Open) -> None:
    tab, service = show(busy_run)
    page = tab.page
    page.get_by_role("button", name="Evaluate checkpoint").focus()
    page.keyboard.press("Enter")
    path = page.get_by_label("Folder of the checkpoint")
    expect(path).to_be_focused()
    expect(path).to_have_value("/ckpt/")
    page.keyboard.press("End")
    page.keyboard.type("step_400")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # not on rev
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("c2 will be evaluated: c2/sort")
    assert service.posted == [
        ("checkpoints", {"path": "/ckpt/step_400", "datasets": ["sort"], "priority": 1})
    ]


def test_what_is_wrong_with_a_submission_is_shown_where_it_was_made(show: Open) -> None:
    tab, service = show(busy_run, width=390)
    page = tab.page
    advice = "give a path below one of /ckpt"
    service.refusals["checkpoints"] = Refusal(403, "outside_roots", "it lies outside", "/etc/passwd", advice)
    page.get_by_role("button", name="Evaluate checkpoint").click()
    dialog = page.get_by_role("dialog", name="Evaluate a checkpoint")
    page.get_by_label("Folder of the checkpoint").fill("/etc/passwd")
    page.get_by_label("Priority").fill("500")
    evaluate = dialog.get_by_role("button", name="Evaluate", exact=True)
    evaluate.click()
    expect(dialog.get_by_role("alert")).to_contain_text("not a whole number from -100 to 100")
    assert service.posted == []
    page.get_by_label("Priority").fill("5")
    evaluate.click()
    alert = dialog.get_by_role("alert")
    for text in ("it lies outside", "/etc/passwd", advice):
        expect(alert).to_contain_text(text)
    expect(page.get_by_label("Folder of the checkpoint")).to_have_value("/etc/passwd")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_two_versions_are_compared_answer_by_answer(show: Open) -> None:
    tab, _ = show(busy_run)
    page = tab.page
    tab.go("#/compare")
    for name, choice in (("Dataset", "sort"), ("Before", "v2/sort"), ("After", "v9/sort")):
        page.get_by_label(name, exact=True).select_option(choice)
    summary = page.get_by_label("Difference")
    expect(summary).to_contain_text("v2 to v9 on sort")
    expect(summary).to_contain_text("v9 is better than v2 on this dataset")
    expect(summary).to_contain_text("adjusted Wald for paired proportions, ")
    better = page.get_by_role("button", name="Better")
    better.click()
    first = page.locator(".sample").first
    expect(first).to_contain_text("Better")
    left, right = first.locator(".side").nth(0), first.locator(".side").nth(1)
    expect(left.locator(".badge .icon-wrong")).to_be_visible()
    expect(left.locator(".badge")).to_have_text("Wrong")
    expect(right.locator(".badge .icon-right")).to_be_visible()
    expect(right.locator(".badge")).to_have_text("Right")
    expect(left.locator("del").first).to_be_visible()
    expect(right.locator("ins").first).to_be_visible()
    line = "getComputedStyle(e).textDecorationLine"
    assert left.locator("del").first.evaluate(f"e => {line}") == "line-through"
    assert right.locator("ins").first.evaluate(f"e => {line}") == "underline"
    assert "v2%2Fsort" in page.url, "the address can be passed on"
    assert "v9%2Fsort" in page.url
    page.get_by_role("button", name="Worse").click()
    expect(page.locator("main")).to_contain_text("No sample of this kind")


def test_a_job_that_runs_has_no_reason_to_show_and_one_that_ended_has(show: Open) -> None:
    def scene(now: float) -> World:
        world = busy_run(now)
        world.jobs["v10/sort"]["protected"] = False
        return world

    tab, _ = show(scene)
    for job, count in (("v10%2Fsort", 0), ("v6%2Fsort", 1)):
        tab.go(f"#/job/{job}")
        expect(tab.page.locator("main")).to_contain_text("Train step")
        expect(tab.page.get_by_text("Why", exact=True)).to_have_count(count)


def test_a_job_leads_to_its_comparison_with_the_one_before(show: Open) -> None:
    tab, _ = show(busy_run)
    tab.go("#/job/v9%2Frev")
    tab.page.get_by_role("link", name="Compare with v8").click()
    expect(tab.page.get_by_label("Difference")).to_contain_text("v8 to v9 on rev")
