"""docs/slime.md is as the code is."""

from __future__ import annotations

from pathlib import Path

from slime_patch.arguments import flag_table

PAGE = Path(__file__).resolve().parents[3] / "docs" / "slime.md"
BEGIN = "<!-- made by slime_patch.arguments.flag_table() -->\n"
END = "<!-- end of the table -->\n"


def test_the_flag_table_is_the_parsers() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page[page.index(BEGIN) + len(BEGIN) : page.index(END)]
    assert table == flag_table(), f"put this between the two comments in {PAGE.name}:\n{flag_table()}"
