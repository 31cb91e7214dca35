"""Reports that do not name their findings: which of their text is taken, and what is said of it.

As in MIMIC's rules the paragraphs after the first of the last section are the report where neither findings nor
impression has a header. The same holds for the section right before an impression, where MIMIC's leave the
findings in the comparison; and a text without any header is all findings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from cxrlab.data.sections.headers import (
    IMAGE,
    NOTIFICATION,
    PREAMBLE,
    RANK,
    RECOMMENDATION,
    SIGNATURE,
    TECHNIQUE,
)
from cxrlab.data.sections.naming import names_a_image
from cxrlab.data.sections.runs import PARAGRAPH, Run, trimmed

_FEW_WORDS = 4
LONGEST_TITLE = 100
_PASSED_OVER = (SIGNATURE, RECOMMENDATION, NOTIFICATION, IMAGE)


class How(StrEnum):
    """How findings and impression were found."""

    HEADERS = "headers"
    LAST_PARAGRAPH = "last paragraph"
    WHOLE_TEXT = "whole text"
    NOTHING = "nothing"


def unmerged(runs: list[Run]) -> list[Run]:
    """Findings and impression in one section are findings where the impression has a section of its own besides."""
    if not any(run.section == "impression" and not run.merged for run in runs):
        return runs
    return [replace(run, section="findings", merged=False) if run.merged else run for run in runs]


def with_findings(text: str, runs: list[Run]) -> tuple[list[Run], How]:
    """The runs with findings made of text that no header names, and how they were found."""
    impression = next((at for at, run in enumerate(runs) if run.section == "impression"), None)
    if any(run.section == "findings" for run in runs) or (impression is not None and runs[impression].merged):
        return runs, How.HEADERS
    if impression is None:
        last = next((at for at in reversed(range(len(runs))) if runs[at].section not in _PASSED_OVER), None)
    else:
        last = impression - 1 if impression else None
    split = _split(text, runs[last], before_impression=impression is not None) if last is not None else None
    if last is None or split is None:
        return runs, How.HEADERS if impression is not None or any(
            run.section != PREAMBLE for run in runs
        ) else How.NOTHING
    return [*runs[:last], *split, *runs[last + 1 :]], How.WHOLE_TEXT if runs[
        last
    ].section == PREAMBLE else How.LAST_PARAGRAPH


def _split(text: str, run: Run, *, before_impression: bool) -> list[Run] | None:
    """A run with its unnamed findings parted off; None where it has none."""
    if run.section == PREAMBLE:
        rest = _after_titles(text, run)
        parts = [] if rest.start == run.start else [replace(run, end=trimmed(text, run.start, rest.start)[1])]
        wanted = not before_impression or _is_prose(text[rest.start : rest.end])
        return [*parts, rest] if wanted and rest.start < rest.end else None
    paragraph = PARAGRAPH.search(text, run.start, run.end)
    if paragraph is None:
        return None
    rest = Run("findings", *trimmed(text, paragraph.end(), run.end))
    if before_impression and (run.section not in RANK or not _is_prose(text[rest.start : rest.end])):
        return None
    return [replace(run, end=trimmed(text, run.start, paragraph.start())[1]), rest]


def _is_prose(text: str) -> bool:
    return len(text.split()) >= _FEW_WORDS and any(letter.islower() for letter in text) or ". " in text


def _after_titles(text: str, run: Run) -> Run:
    """What follows the lines of a preamble that only name the film."""
    start = run.start
    while (line := _title(text, start, run.end)) is not None:
        start = line
    return Run("findings", *trimmed(text, start, run.end))


def _title(text: str, start: int, end: int) -> int | None:
    """Where the line at `start` ends if it names a film and nothing else."""
    stop = text.find("\n", start, end)
    stop = end if stop < 0 else stop + 1
    line = text[start:stop].strip()
    if start >= end or (line and (len(line) > LONGEST_TITLE or not names_a_image(line))):
        return None
    return stop


def with_examination(text: str, runs: list[Run]) -> list[Run]:
    """Where no header names the examination: the film's name on top or over the findings, else the technique."""
    told_by: tuple[Callable[[Run], bool], ...] = (
        lambda run: run.section == "examination",
        lambda run: run.section == PREAMBLE and _only_titles(text, run),
        lambda run: run.section == IMAGE,
        lambda run: run.section == TECHNIQUE,
    )
    tells = next((tells for tells in told_by if any(map(tells, runs))), None)
    return [replace(run, section="examination") if tells and tells(run) else run for run in runs]


def _only_titles(text: str, run: Run) -> bool:
    lines = [line for line in text[run.start : run.end].split("\n") if line.strip()]
    return run.end - run.start <= 2 * LONGEST_TITLE and all(map(names_a_image, lines))
