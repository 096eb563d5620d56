"""A real Chromium for tests of the page, and what one asks of an open page."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHECKS = Path(__file__).with_name("page_checks.js")
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = {1280: 900, 390: 844}
"""Width -> height of the screens that the page is made for."""
WAIT_MS = 20_000
"""Longest wait for anything."""


def executable() -> str | None:
    """Where Chromium is."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def why_not() -> str:
    """What is missing for tests in a browser; empty if nothing is."""
    if importlib.util.find_spec("playwright") is None:
        return "the package playwright is not installed (make setup)"
    return "" if executable() else "there is no Chromium on PATH (apt-get install chromium)"


def expect(target: Any) -> Any:
    """Playwright's assertion that waits, without which test files can be imported too."""
    from playwright.sync_api import expect

    expect.set_options(timeout=WAIT_MS)  # by itself 5 s
    return expect(target)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of its own."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root Chromium's own sandbox cannot be had, and /dev/shm is small in containers.
        browser = playwright.chromium.launch(
            executable_path=executable(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@dataclass
class Tab:
    """An open page, with all that went wrong in it."""

    page: Page
    troubles: list[str] = field(default_factory=list)

    @property
    def width(self) -> int:
        """Of the screen."""
        size = self.page.viewport_size
        assert size is not None
        return size["width"]

    def go(self, route: str) -> None:
        """Open a view of the page by its part of the address behind the #."""
        self.page.evaluate("route => { location.hash = route }", route)

    def overflow(self) -> list[str]:
        """What sticks out to the right of the screen and would have to be scrolled to."""
        return self._check("overflow")

    def faint_texts(self) -> list[str]:
        """Texts whose contrast to what is behind them is below 4.5, with the contrast."""
        return self._check("faintTexts")

    def _check(self, name: str) -> list[str]:
        return self.page.evaluate(f"() => {{ {CHECKS.read_text()}\nreturn {name}(); }}")


@contextmanager
def tab(
    browser: Browser, url: str, *, width: int = 1280, scheme: Literal["light", "dark"] = "light"
) -> Iterator[Tab]:
    """The page at `url` in a fresh profile. What it logs as an error ends up in `troubles`."""
    context = browser.new_context(
        viewport={"width": width, "height": WIDTHS[width]}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.set_default_timeout(WAIT_MS)
    opened = Tab(context.new_page())
    opened.page.on("pageerror", lambda error: opened.troubles.append(str(error)))
    opened.page.on("console", lambda message: _note(opened, message))
    opened.page.goto(url)
    try:
        yield opened
    finally:
        context.close()


def _note(opened: Tab, message: Any) -> None:
    # Chromium itself logs every answer of status 400 and up; what the page makes of it is seen in the page.
    if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
        opened.troubles.append(message.text)
