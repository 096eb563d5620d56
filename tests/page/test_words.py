"""What reasons are called on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fakes.page_scenes import empty_run

if TYPE_CHECKING:
    from conftest import Open

pytestmark = pytest.mark.browser


def test_a_reason_is_told_in_words_with_what_stands_behind_it(show: Open) -> None:
    tab, _ = show(empty_run)
    reasons = ["interval", "interval: due after rollout 4", "something_new", "", None]
    found = tab.page.evaluate(
        "async reasons => { const { reasonWord } = await import('/words.js');"
        " return reasons.map(reasonWord); }",
        reasons,
    )
    assert found == [
        "due by the interval",
        "due by the interval (due after rollout 4)",
        "something new",
        "",
        "",
    ]
