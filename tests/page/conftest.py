"""One browser for each file of tests, a stand-in of the service for each test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from fakes.browser import Tab, chromium, tab
from fakes.page_service import PageService, page_service

if TYPE_CHECKING:
    from fakes.page_world import World
    from playwright.sync_api import Browser

Open = Callable[..., tuple[Tab, PageService]]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Closed before any test that runs an event loop of its own."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def show(browser: Browser) -> Iterator[Open]:
    """Opens a page over a scene and waits until it follows; at the end nothing may have gone wrong in it."""
    with ExitStack() as stack:
        tabs: list[Tab] = []

        def opened(scene: Callable[[float], World], *, follows: bool = True, **screen: Any) -> Any:
            service = stack.enter_context(page_service(scene(time.time())))
            tabs.append(stack.enter_context(tab(browser, service.url, **screen)))
            if follows:
                service.wait_for_client()
                tabs[-1].page.get_by_role("button", name="Live", exact=True).wait_for()
            return tabs[-1], service

        yield opened
        assert [trouble for each in tabs for trouble in each.troubles] == []
