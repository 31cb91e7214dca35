"""A report's text cut into its five sections, with the characters of each.

The rules are told in `docs/sections.md`. Any text is parsed, of any length; nothing raises.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from cxrlab.core.records import SECTIONS, Report, Span
from cxrlab.data.sections.detection import marks
from cxrlab.data.sections.headers import (
    IMAGE,
    NOTIFICATION,
    PREAMBLE,
    RANK,
    RECOMMENDATION,
    SIGNATURE,
    TECHNIQUE,
    names_a_image,
)
from cxrlab.data.sections.segments import PARAGRAPH, Run, runs, trimmed


@dataclass(frozen=True)
class ParsedReport:
    """A report's text and where its sections are.

    Args:
        text: The text as it was given.
        spans: Section of `Report` → its stretches [start, end) of the text, in order; absent ones are left out.
        other: The same for what belongs to none of the five: technique and film beside a named examination,
            recommendation, notification, wet read, addendum, signature, preamble, administration, summary, unnamed.
        how: How findings and impression were found; counted by importers.
        merged: Whether the impression holds the findings too ("FINDINGS AND IMPRESSION").
        markup: Whether the text is HTML, of which the sections are freed.
    """

    text: str
    spans: Mapping[str, tuple[Span, ...]]
    other: Mapping[str, tuple[Span, ...]]
    how: How
    merged: bool = False
    markup: bool = False

    @cached_property
    def report(self) -> Report:
        """The five sections as text: wrapped lines joined, a new line for each stretch, paragraph and list item."""
        return Report(**{name: self.section_text(name) for name in self.spans})

    def section_text(self, name: str) -> str | None:
        """The text of one section, also of `other`; None where there is none."""
        spans = self.spans.get(name) or self.other.get(name)
        return "\n".join(folded(self.text[start:end], markup=self.markup) for start, end in spans) if spans else None


def parse(text: str | float | None) -> ParsedReport:
    """The sections of a free-text report; None and not-a-number, which tables have for no text, are an empty text."""
    if text is None or (isinstance(text, float) and math.isnan(text)):
        text = ""
    if not isinstance(text, str):
        raise TypeError(f"a report is text, not {type(text).__name__}.")
    markup = is_markup(text)
    view = plain(text, markup=markup)
    found = [_settled(view, run) for run in runs(view, marks(view)) if _says_something(view, run)]
    found, how = with_findings(view, unmerged(found))
    found = with_examination(view, found)
    spans: dict[str, list[Span]] = {name: [] for name in SECTIONS}
    for run in found:
        spans.setdefault(run.section, []).append(run.span)
    return ParsedReport(
        text=text,
        spans=MappingProxyType({name: tuple(spans[name]) for name in SECTIONS if spans[name]}),
        other=MappingProxyType({name: tuple(value) for name, value in spans.items() if name not in SECTIONS}),
        how=how,
        merged=any(run.merged for run in found),
        markup=markup,
    )


def _says_something(view: str, run: Run) -> bool:
    """Findings and impression need a letter: "___" or a date under a film's name is no finding."""
    if run.section not in ("findings", "impression"):
        return True
    return any(letter.isalpha() for letter in view[run.start : run.end])


def _settled(view: str, run: Run) -> Run:
    """What only names a film, under a film's name ("CHEST: PA AND LATERAL"), is the examination."""
    if not run.image or run.end - run.start > LONGEST_TITLE:
        return run
    return replace(run, section="examination") if names_a_image(view[run.start : run.end], strictly=True) else run


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


# Every kind of blank is a blank and every kind of line end a line end, character for character.
_SAME_LENGTH = str.maketrans(
    {
        **dict.fromkeys([0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " "),
        **dict.fromkeys("\ufeff\u200b\u200c\u200d\u2060\x00", " "),
        **dict.fromkeys("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", "\n"),
        "\t": " ",
        "：": ":",
    }
)  # fmt: skip
_INLINE_TAG = r"</?(?:b|i|u|em|strong|span|font|sup|sub|small|big|code|a)(?:\s[^<>\n]{0,200})?/?>"
_BREAK_TAG = r"</?(?:p|br|div|li|ul|ol|tr|td|th|table|h[1-6]|hr|pre|section|body|html|report)(?:\s[^<>\n]{0,200})?/?>"
_MARKUP = re.compile(rf"(?P<line>{_BREAK_TAG})|{_INLINE_TAG}|&nbsp;|&#160;|&#xa0;", re.IGNORECASE)
# Line ends that an export spelled out: "\\n", and "\\.br\\" of HL7.
_SPELLED_OUT = re.compile(r"\\\.br\\|(?:\\r)?\\n(?![a-z])")
_BOLD = re.compile(r"\*+")
_UNDERSCORED = re.compile(r"(?<![_\w])__(?=[A-Za-z][A-Za-z /&]{2,40}:?__(?!_))|(?<=[A-Za-z:])__(?![_\w])")
_HASHES = re.compile(r"^#{1,6}(?= )", re.MULTILINE)
_LIST_ITEM = re.compile(r"(?:\(?\d{1,2}[.)]|#\d{1,2}[.:)]?|\(?[a-h][.)]|[-•·*–])\s+\S")


# "Heart: normal" under "Lungs: clear" is a line of a form, not a wrapped sentence.
_LABEL = re.compile(r"[A-Z][A-Za-z]*(?:(?: and |[ /,&-]{1,2})[A-Za-z]+){0,3}:\s+\S")


def _blanks(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _blanks_and_lines(match: re.Match[str]) -> str:
    """As many characters, the last a line end where the tag ends a line."""
    return _blanks(match)[:-1] + ("\n" if match.lastgroup == "line" else " ")


def plain(text: str, *, markup: bool) -> str:
    """The text with tags and odd blanks as blanks, of the same length: a place here is a place there.

    In `markup` some tags are line ends.
    """
    text = text.translate(_SAME_LENGTH).replace("\r\n", " \n").replace("\r", "\n")
    if "\\" in text:
        text = _SPELLED_OUT.sub(lambda match: " " * (len(match[0]) - 1) + "\n", text)
    if "<" in text or "&" in text:
        text = _MARKUP.sub(_blanks_and_lines if markup else _blanks, text)
    if "*" in text:
        text = _BOLD.sub(_blanks, text)
    if "__" in text:
        text = _UNDERSCORED.sub("  ", text)
    return _HASHES.sub(_blanks, text) if "#" in text else text


def _readable(match: re.Match[str]) -> str:
    if match.lastgroup == "line":
        return "\n"
    return " " if match[0].startswith("&") else ""


def is_markup(text: str) -> bool:
    """Whether a text is written in HTML: a closing tag or two tags; a single tag is a remnant and stays text."""
    tags = re.finditer(rf"{_BREAK_TAG}|{_INLINE_TAG}", text, re.IGNORECASE) if "<" in text else iter(())
    first = next(tags, None)
    return first is not None and (first[0].startswith("</") or next(tags, None) is not None)


def folded(text: str, *, markup: bool) -> str:
    """Text for reading: wrapped lines joined by a blank; a new line for each paragraph, list item and "Heart: normal".

    Blanks inside a line stay as they are. Of `markup` the tags go and character references are resolved.
    """
    text = text.translate(_SAME_LENGTH).replace("\r\n", "\n").replace("\r", "\n")
    if markup:
        text = html.unescape(_MARKUP.sub(_readable, text)).translate(_SAME_LENGTH)
    text = _SPELLED_OUT.sub("\n", text).replace("**", "")
    parts: list[list[str]] = []
    fresh = True
    for line in map(str.strip, text.split("\n")):
        if not line:
            fresh = True
        elif fresh or _LIST_ITEM.match(line) or _LABEL.match(line):
            parts.append([line])
            fresh = False
        else:
            parts[-1].append(line)
    return "\n".join(" ".join(part) for part in parts)
