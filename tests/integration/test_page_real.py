"""The page over a real run: trainer, receiver, service and SGLang are real, and so is the browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.browser import Tab, chromium, expect, tab
from fakes.job import Job, job_in
from fakes.job_gate import EngineGate, asks

from live_eval.config import EngineSettings, HttpSettings

pytestmark = [pytest.mark.engine, pytest.mark.browser]


@pytest.fixture
def job(tmp_path: Path, job_base: Path, gate: EngineGate) -> Iterator[Job]:
    """A job with a page, from which its own versions may be submitted."""
    engines = EngineSettings(addresses=(gate.url,), device="cpu")
    http = HttpSettings(checkpoint_roots=(tmp_path,))
    with job_in(tmp_path / "job", job_base, engines, scheduler={"on_update": "queue"}, http=http) as made:
        yield made


def test_a_real_run_is_followed_cancelled_compared_and_added_to(job: Job, gate: EngineGate) -> None:
    trainer = job.trainer()
    job.start()
    url = job.run_dir.http_url.read_text().strip()
    with chromium() as browser, tab(browser, url) as opened:
        page = opened.page
        expect(page.locator("#connection")).to_have_text("Live")
        expect(page.locator("main")).to_contain_text("no sync yet")

        gate.hold(asks("a", after=1))
        trainer.round()
        gate.wait_held()
        expect(page.locator(".figure").filter(has_text="Running")).to_contain_text("a 2 of 4")
        expect(page.locator('[data-dataset="a"]')).to_contain_text("v1 runs, 2 of 4")
        trainer.round()
        cancel(opened, "v2/b")
        job.until_ended("v2/b")
        assert job.ends()["v2/b"] == "cancelled: user"
        gate.release()

        job.until_ended("v1/a", "v1/b", "v2/a")
        score = job.ask_ledger("SELECT score FROM results WHERE job_id = 'v2/a'")[0]["score"]
        card = page.locator('[data-dataset="a"]')
        expect(card.locator(".which")).to_have_text("v2, newest score")
        expect(card.locator(".big")).to_have_text(f"{score:.3f}")
        lane = page.locator("svg.lane[tabindex]")
        expect(lane.locator(".sync")).to_have_count(2)
        expect(lane.locator(".job.succeeded")).not_to_have_count(0)
        expect(lane.locator(".load")).not_to_have_count(0)
        lane.press("End")
        told = page.locator(".readout")
        expect(told).to_contain_text("a succeeded")
        expect(told).to_contain_text("b cancelled: cancelled by a user")

        opened.go("#/versions")
        digest = trainer.digests[2]
        expect(page.locator("tbody tr").first.locator("code")).to_have_text(digest[:10])
        opened.go("#/compare?left=v1%2Fa&right=v2%2Fa")
        expect(page.get_by_label("Difference")).to_contain_text("4 pairs")
        expect(page.locator(".sample")).to_have_count(4)

        opened.go("#/job/v2%2Fa")
        expect(page.locator("main")).to_contain_text("To the one before")

        submit(opened, job.run_dir.store / "versions" / "v000001")
        job.until_ended("c1/a", "c1/b")
        opened.go("#/jobs")
        expect(page.locator("tbody tr").filter(has_text="c1 v000001")).to_have_count(2)
        assert opened.troubles == []
    job.finish()


def cancel(opened: Tab, job_id: str) -> None:
    """As a person does."""
    opened.page.get_by_role("button", name=f"Cancel {job_id}").click()
    opened.page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(opened.page.get_by_role("dialog")).to_have_count(0)


def submit(opened: Tab, checkpoint: Path) -> None:
    """One outside first, which is refused."""
    page = opened.page
    page.get_by_role("button", name="Evaluate checkpoint").click()
    dialog = page.get_by_role("dialog")
    for path, answer in ((Path("/etc"), "/etc"), (checkpoint, None)):
        page.get_by_label("Folder of the checkpoint").fill(str(path))
        dialog.get_by_role("button", name="Evaluate", exact=True).click()
        if answer is not None:
            expect(dialog.get_by_role("alert")).to_contain_text(answer)
    expect(page.locator("#toasts")).to_contain_text("c1 will be evaluated")
