"""What applying or reverting does to a checkout, decided for all files before any is written.

Applying is a function of each file without its insertions: a second time it changes nothing, after a kill
half-way it completes, and insertions that an earlier live-eval wrote are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from slime_patch.patching import state
from slime_patch.patching.anchors import FILES, INSERTIONS, NEEDS, Insertion, Need
from slime_patch.patching.edit import insert, missing, unmet
from slime_patch.patching.problems import PatchRefused, Problem
from slime_patch.patching.replace import Change, remove_leftovers, replace_all
from slime_patch.patching.source import Source

if TYPE_CHECKING:
    from slime_patch.patching.checkout import Checkout

Condition = Literal["applied", "not applied", "outdated", "unsupported"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileReport:
    """One file of a checkout that is to be edited."""

    file: str
    condition: Condition
    insertions: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Examination:
    """Whether a checkout is supported (no problems), and what is in it already."""

    files: tuple[FileReport, ...]
    problems: tuple[Problem, ...]

    @property
    def condition(self) -> str:
        """The files' conditions as one."""
        conditions = {report.condition for report in self.files}
        if self.problems:
            return "not supported"
        if conditions == {"applied"}:
            return "supported, applied"
        if conditions == {"not applied"}:
            return "supported, not applied"
        return "supported, applied in part or by another version: run apply"


def examine(checkout: Checkout) -> Examination:
    """Every problem of every file, and what is applied."""
    reports: list[FileReport] = []
    problems: list[Problem] = []
    for file in FILES:
        report, trouble = _examine_file(checkout, file)
        reports.append(report)
        problems += trouble
    problems += _unmet(checkout)
    return Examination(files=tuple(reports), problems=tuple(problems))


def changes_to_apply(checkout: Checkout) -> dict[str, Change]:
    """Per file that applying changes: its content before and after.

    Raises PatchRefused with all problems: anchors, edited insertions, what the hooks need and slime lacks.
    """

    def applied(data: bytes, file: str) -> bytes:
        source = Source(state.strip(data, file=file), file=file)
        return insert(source, _insertions_of(file))

    trouble = _unmet(checkout)
    return _changes(checkout, applied, what="this checkout of slime cannot be patched", trouble=trouble)


def changes_to_revert(checkout: Checkout) -> dict[str, Change]:
    """Per file that has insertions: its content before and after. Raises PatchRefused if one was edited."""
    return _changes(checkout, lambda data, file: state.strip(data, file=file), what="revert is not possible")


def carry_out(checkout: Checkout, changes: Mapping[str, Change]) -> None:
    """Write the changes, all or none; remove what a killed run left behind. Raises ConfigError."""
    for file in FILES:
        remove_leftovers(checkout.place(file))
    replace_all({checkout.place(file): change for file, change in changes.items()})


def _changes(
    checkout: Checkout,
    edited: Callable[[bytes, str], bytes],
    *,
    what: str,
    trouble: list[Problem] | None = None,
) -> dict[str, Change]:
    changes: dict[str, Change] = {}
    problems: list[Problem] = []
    for file in FILES:
        old = checkout.read(file)
        if old is None:
            problems += [] if trouble is None else [Problem(file=file, words="is missing")]
            continue
        try:
            new = edited(old, file)
        except PatchRefused as error:
            problems += error.problems
        else:
            if new != old:
                changes[file] = Change(old=old, new=new)
    problems += trouble or []
    if problems:
        raise PatchRefused(what, problems)
    return changes


def _examine_file(checkout: Checkout, file: str) -> tuple[FileReport, list[Problem]]:
    insertions = _insertions_of(file)
    names = tuple(insertion.name for insertion in insertions)
    problems: list[Problem] = []
    condition: Condition = "unsupported"
    data = checkout.read(file)
    if data is None:
        problems.append(Problem(file=file, words="is missing"))
    else:
        try:
            stripped = state.strip(data, file=file)
            source = Source(stripped, file=file)
            problems += missing(source, insertions)
            if not problems and stripped == data:
                condition = "not applied"
            elif not problems:
                condition = "applied" if insert(source, insertions) == data else "outdated"
        except PatchRefused as error:
            problems += error.problems
    return FileReport(file=file, condition=condition, insertions=names), problems


def _unmet(checkout: Checkout) -> list[Problem]:
    by_file: dict[str, list[Need]] = {}
    for need in NEEDS:
        by_file.setdefault(need.file, []).append(need)
    problems: list[Problem] = []
    for file, needs in by_file.items():
        data = checkout.read(file)
        if data is None:
            problems.append(Problem(file=file, words=f"is missing, where {needs[0].function}() is needed"))
            continue
        try:
            problems += unmet(Source(data, file=file), needs)
        except PatchRefused as error:
            problems += error.problems
    return problems


def _insertions_of(file: str) -> tuple[Insertion, ...]:
    return tuple(insertion for insertion in INSERTIONS if insertion.file == file)
